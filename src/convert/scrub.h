// Reads every byte of a checkpoint from the disk, past what the page cache holds of it, and
// compares what has a checksum: all weights of a container. Other layouts have none; of them it
// can only say that they are readable.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "source/model_source.h"

namespace moeflux {

struct ScrubOptions {
  int n_threads = 4;  // that many reads at a time
  // Called by one thread at a time; may throw, which ends the scrub.
  std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)> progress;
};

struct Damage {
  std::string name;  // the expert or tensor
  std::string path;  // its file
  std::string what;  // "the checksum is wrong", or why it cannot be read
};

struct ScrubReport {
  std::uint64_t bytes = 0;
  std::size_t n_checksums = 0;  // that were compared
  std::vector<Damage> damage;   // by file and offset
};

ScrubReport scrub(const ModelSource& source, const ScrubOptions& options);

}  // namespace moeflux
