// How fast this machine reads records of the size that matters: what `doctor` reports, `plan`
// predicts with, and a choice of queue depth rests on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/make_reader.h"

namespace moeflux {

struct MeasureOptions {
  std::size_t record_bytes = std::size_t{4} << 20;  // at most the size of the largest file
  int records_in_flight = 16;
  double max_seconds = 1.0;
  std::uint64_t max_bytes = std::uint64_t{64} << 30;  // whichever bound comes first
  std::uint64_t seed = 1;                             // of the places read
  // Records land in this much memory in turn, in as much as they need at least: what the caches of
  // a processor hold is filled faster than memory.
  std::size_t memory_bytes = std::size_t{64} << 20;
  bool register_memory = true;
};

struct ReadSpeed {
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;
  double cpu_seconds = 0;  // of this process, so of the reader if nothing else runs in it
  double bytes_per_second() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
  double records_per_second() const {
    return seconds > 0 ? static_cast<double>(records) / seconds : 0;
  }
};

// Reads records at random aligned places of `paths`, always records_in_flight of them. With
// options.direct off, what the page cache holds counts as read. Throws Error naming the file when a
// read fails.
ReadSpeed measure_reader(const std::vector<std::string>& paths, const ReaderOptions& options,
                         const MeasureOptions& measure);

// How many records in flight keep the drive busy: the fewest that come close to the best speed of
// 1, 2, 4 and 8. More have to wait for each other inside the drive, and some drives report none
// before all are done. Takes about max_seconds.
inline constexpr int kMostReadsAtOnce = 8;
struct BusyDrive {
  int reads_at_once = 1;
  double bytes_per_second = 0;  // the best that was seen
};
BusyDrive keep_drive_busy(const std::vector<std::string>& paths, const ReaderOptions& options,
                          const MeasureOptions& measure);

struct DepthSpeed {
  int depth;
  double bytes_per_second;
};
// The choice of the above; `speeds` by ascending depth.
int fewest_that_keep_busy(std::span<const DepthSpeed> speeds);

// The fastest of some reader kinds and queue depths, measured for about max_seconds in all. What is
// not faster by a tenth than a candidate with fewer reads in flight is not chosen: depth has a
// price in latency.
struct Calibration {
  ReaderOptions options;
  ReadSpeed speed;
};
Calibration calibrate_reader(const std::vector<std::string>& paths, const ReaderOptions& base,
                             const MeasureOptions& measure);

}  // namespace moeflux
