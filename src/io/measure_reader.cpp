#include "io/measure_reader.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <ctime>
#include <deque>
#include <numeric>
#include <random>

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/file.h"
#include "io/transfer.h"
#include "io/uring_reader.h"

namespace moeflux {
namespace {

constexpr std::size_t kPlaceAlignment = 4096;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds_now() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Random places where a record fits, files weighted by their size.
class Places {
 public:
  Places(const std::vector<std::string>& paths, const MeasureOptions& measure)
      : random_(measure.seed), paths_(paths) {
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const std::uint64_t bytes = File(paths[i]).size();
      if (bytes < measure.record_bytes) continue;
      const std::uint64_t count = (bytes - measure.record_bytes) / kPlaceAlignment + 1;
      total_ += count;
      files_.push_back({static_cast<int>(i), total_, count});
    }
    if (files_.empty()) {
      fail(Errc::BadInput, "no file to measure holds a record of {} bytes", measure.record_bytes);
    }
  }

  ReadOp next(std::span<std::byte> out, std::uint64_t tag) {
    const std::uint64_t place =
        std::uniform_int_distribution<std::uint64_t>(0, total_ - 1)(random_);
    const auto file = std::upper_bound(
        files_.begin(), files_.end(), place,
        [](std::uint64_t value, const FilePlaces& candidate) { return value < candidate.end; });
    const std::uint64_t in_file = place - (file->end - file->count);
    return {.file = file->file, .offset = in_file * kPlaceAlignment, .out = out, .tag = tag};
  }

  const std::string& path(int file) const { return paths_[static_cast<std::size_t>(file)]; }

 private:
  struct FilePlaces {
    int file;
    std::uint64_t end;  // running total
    std::uint64_t count;
  };
  std::mt19937_64 random_;
  const std::vector<std::string>& paths_;
  std::vector<FilePlaces> files_;
  std::uint64_t total_ = 0;
};

void validate(const MeasureOptions& measure) {
  if (measure.record_bytes == 0 || measure.record_bytes > (std::size_t{1} << 30) ||
      measure.records_in_flight < 1 || measure.records_in_flight > 4096) {
    fail(Errc::BadInput, "cannot measure {} records of {} bytes in flight",
         measure.records_in_flight, measure.record_bytes);
  }
}

}  // namespace

ReadSpeed measure_reader(const std::vector<std::string>& paths, const ReaderOptions& options,
                         const MeasureOptions& measure) {
  validate(measure);
  Places places(paths, measure);
  const std::size_t stride = round_up(measure.record_bytes, kPlaceAlignment);
  const auto n_in_flight = static_cast<std::size_t>(measure.records_in_flight);
  const std::size_t n_buffers = std::max(n_in_flight, measure.memory_bytes / stride);
  const HugeBuffer memory(stride * n_buffers);
  std::memset(memory.data(), 1, memory.size());  // page faults belong to no drive
  const auto reader = make_reader(paths, options);
  if (measure.register_memory) {
    static_cast<void>(reader->register_memory(memory.bytes()));
  }

  std::vector<ReadOp> ops(n_buffers);
  std::vector<ReadResult> results(n_in_flight);
  std::deque<std::size_t> free_buffers(n_buffers);
  std::iota(free_buffers.begin(), free_buffers.end(), 0);
  const auto next_op = [&] {
    const std::size_t buffer = free_buffers.front();
    free_buffers.pop_front();
    return ops[buffer] =
               places.next({memory.data() + buffer * stride, measure.record_bytes}, buffer);
  };
  std::vector<ReadOp> batch;
  for (std::size_t i = 0; i < n_in_flight; ++i) batch.push_back(next_op());

  ReadSpeed speed;
  const double start = seconds_now();
  const double cpu_start = cpu_seconds_now();
  reader->submit(batch);
  while (speed.seconds < measure.max_seconds && speed.bytes < measure.max_bytes) {
    const std::size_t n = reader->wait(results, true);
    batch.clear();
    for (const ReadResult& result : std::span(results).first(n)) {
      const ReadOp& op = ops[result.tag];
      if (result.error != 0) {
        fail(Errc::Io, "{}: read of {} bytes at {} failed: {}", places.path(op.file), op.out.size(),
             op.offset, describe_read_error(result.error));
      }
      speed.bytes += result.bytes;
      ++speed.records;
      free_buffers.push_back(result.tag);
      batch.push_back(next_op());
    }
    speed.seconds = seconds_now() - start;
    reader->submit(batch);
  }
  speed.cpu_seconds = cpu_seconds_now() - cpu_start;
  return speed;
}

int fewest_that_keep_busy(std::span<const DepthSpeed> speeds) {
  constexpr double kClose = 0.85;  // measuring is hardly better than that
  double best = 0;
  for (const DepthSpeed& each : speeds) best = std::max(best, each.bytes_per_second);
  for (const DepthSpeed& each : speeds) {
    if (each.bytes_per_second >= kClose * best) return each.depth;
  }
  return 1;
}

BusyDrive keep_drive_busy(const std::vector<std::string>& paths, const ReaderOptions& options,
                          const MeasureOptions& measure) {
  constexpr int kRounds = 2;  // interleaved, so that a slow moment hits all
  std::array<DepthSpeed, 4> speeds{{{1, 0}, {2, 0}, {4, 0}, {kMostReadsAtOnce, 0}}};
  MeasureOptions each = measure;
  each.max_seconds /= static_cast<double>(kRounds * speeds.size());
  for (int round = 0; round < kRounds; ++round) {
    for (DepthSpeed& speed : speeds) {
      each.records_in_flight = speed.depth;
      each.seed = measure.seed + static_cast<std::uint64_t>(round);
      speed.bytes_per_second =
          std::max(speed.bytes_per_second, measure_reader(paths, options, each).bytes_per_second());
    }
  }
  BusyDrive drive{.reads_at_once = fewest_that_keep_busy(speeds)};
  for (const DepthSpeed& speed : speeds)
    drive.bytes_per_second = std::max(drive.bytes_per_second, speed.bytes_per_second);
  return drive;
}

Calibration calibrate_reader(const std::vector<std::string>& paths, const ReaderOptions& base,
                             const MeasureOptions& measure) {
  constexpr std::array<int, 4> kDepths = {4, 8, 16, 32};
  constexpr double kWorthIt = 1.1;
  std::vector<ReaderKind> kinds = {base.kind};
  if (base.kind == ReaderKind::Auto) {
    kinds = {ReaderKind::Pool};
    if (open_uring(1).status == UringStatus::Used) kinds.insert(kinds.begin(), ReaderKind::Uring);
  }
  MeasureOptions each = measure;
  each.max_seconds /= static_cast<double>(kDepths.size() * kinds.size());

  Calibration best{.options = base, .speed = {}};
  for (const int depth : kDepths) {
    for (const ReaderKind kind : kinds) {
      ReaderOptions options = base;
      options.kind = kind;
      options.queue_depth = options.threads = each.records_in_flight = depth;
      const ReadSpeed speed = measure_reader(paths, options, each);
      if (speed.bytes_per_second() > kWorthIt * best.speed.bytes_per_second())
        best = {options, speed};
    }
  }
  return best;
}

}  // namespace moeflux
