#include "engine/measure/measure_speed.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/stopwatch.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kChunk = std::size_t{1} << 20;  // between two looks at the clock

// Several sums, so that the loop waits for memory and not for its own additions.
std::uint64_t sum_words(const std::uint64_t* words, std::size_t count) {
  constexpr std::size_t kSums = 32;
  std::uint64_t sums[kSums] = {};
  for (std::size_t i = 0; i + kSums <= count; i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) sums[k] += words[i + k];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

struct Worker {
  std::span<const std::byte> memory;
  std::uint64_t bytes = 0;  // read
  double seconds = 0;
};

// Holds threads until all of them are ready, or sends them home.
class StartGate {
 public:
  bool wait() {
    std::unique_lock lock(mutex_);
    ++n_waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return go_.has_value(); });
    return *go_;
  }
  void open(bool go) {
    const std::lock_guard lock(mutex_);
    go_ = go;
    changed_.notify_all();
  }
  void open_for(int n_threads) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return n_waiting_ == n_threads; });
    go_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int n_waiting_ = 0;
  std::optional<bool> go_;
};

void read_for(Worker& worker, double seconds) {
  const Clock::time_point start = Clock::now();
  std::size_t offset = 0;
  do {
    const auto* words = reinterpret_cast<const std::uint64_t*>(worker.memory.data() + offset);
    const std::uint64_t sum = sum_words(words, kChunk / sizeof(std::uint64_t));
    asm volatile("" : : "r"(sum));  // used, so that reading cannot be left out
    worker.bytes += kChunk;
    offset = offset + kChunk < worker.memory.size() ? offset + kChunk : 0;
    worker.seconds = seconds_since(start);
  } while (worker.seconds < seconds || worker.bytes < worker.memory.size());
}

constexpr std::int64_t kRows = 4096;  // of one product, like a large projection

// Matrices of kRows rows that lie one after the other, filled with numbers of moderate size.
class Matrices {
 public:
  Matrices(Backend& backend, const WeightFormat& format, std::int64_t cols, std::size_t bytes)
      : data_bytes_(kRows * data_row_bytes(format, cols)),
        plane_bytes_(kRows * scales_per_row(format, cols) *
                     static_cast<std::int64_t>(dtype_size(format.scale_dtype))),
        count_(std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes) / each())),
        memory_(backend.allocate(static_cast<std::uint64_t>(count_ * each()), MemoryKind::Device,
                                 Backing::Huge)),
        weight_{.format = backend.layout_for(format, WeightUse::Product),
                .rows = kRows,
                .cols = cols,
                .buffer = memory_.get()} {
    std::vector<std::byte> one(static_cast<std::size_t>(each()));
    for (std::int64_t i = 0; i < data_bytes_; ++i)  // no NaN in any float format
      one[static_cast<std::size_t>(i)] = static_cast<std::byte>(i * 7919 >> 3 & 0x3F);
    const std::uint32_t scale = std::bit_cast<std::uint32_t>(0.01f);
    const std::int64_t size = format.scale_dtype == DType::F32 ? 4 : 2;
    const std::uint32_t stored = size == 4 ? scale : scale >> 16;
    for (std::int64_t i = data_bytes_; i < each(); i += size)
      std::memcpy(one.data() + i, &stored, static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < count_; ++i)
      backend.upload(one, {memory_.get(), static_cast<std::uint64_t>(i * each()), one.size()});
  }

  std::int64_t each() const { return data_bytes_ + 2 * plane_bytes_; }
  std::int64_t count() const { return count_; }
  const Weight& at(std::int64_t i) {
    weight_.data = static_cast<std::uint64_t>(i * each());
    weight_.scales = weight_.data + static_cast<std::uint64_t>(data_bytes_);
    weight_.biases = weight_.scales + static_cast<std::uint64_t>(plane_bytes_);
    return weight_;
  }

 private:
  std::int64_t data_bytes_, plane_bytes_, count_;
  std::unique_ptr<Buffer> memory_;
  Weight weight_;
};

}  // namespace

MemorySpeed measure_memory(int n_threads, const MemoryMeasureOptions& options) {
  if (n_threads < 1 || n_threads > 1024) {
    fail(Errc::BadInput, "cannot measure memory with {} threads", n_threads);
  }
  const auto n_parts = static_cast<std::size_t>(n_threads);
  const bool given = options.memory.size() >= n_parts * kChunk;
  const std::size_t bytes = given ? options.memory.size() : options.bytes;
  const std::size_t each = std::max(bytes / n_parts / kChunk, std::size_t{1}) * kChunk;
  const HugeBuffer own = given ? HugeBuffer() : HugeBuffer(each * n_parts);
  std::vector<Worker> workers(static_cast<std::size_t>(n_threads));
  StartGate gate;
  {
    std::vector<std::jthread> threads;
    threads.reserve(workers.size());
    for (std::size_t i = 0; i < workers.size(); ++i) {
      workers[i].memory = (given ? options.memory : own.bytes()).subspan(i * each, each);
      try {
        threads.emplace_back([&gate, &options, worker = &workers[i],
                              to_touch = given ? nullptr : own.data() + i * each] {
          if (to_touch != nullptr) std::memset(to_touch, 1, worker->memory.size());
          if (!gate.wait()) return;
          Worker local = *worker;  // on the stack of the thread: counters share no cache line
          read_for(local, options.seconds);
          *worker = local;
        });
      } catch (const std::system_error& error) {
        gate.open(false);
        fail(Errc::Io, "cannot start {} threads to measure memory: {}", n_threads,
             error.code().message());
      }
    }
    gate.open_for(n_threads);
  }
  MemorySpeed speed{.n_threads = n_threads};
  for (const Worker& worker : workers) {
    speed.bytes_per_second += static_cast<double>(worker.bytes) / worker.seconds;
  }
  return speed;
}

std::vector<int> thread_counts(int n_threads) {
  std::vector<int> counts;
  for (int n = 1; n < n_threads; n *= 2) counts.push_back(n);
  counts.push_back(std::max(n_threads, 1));
  return counts;
}

double measure_kernels(Backend& backend, const WeightFormat& format, std::int64_t cols,
                       const KernelMeasureOptions& options) {
  if (cols <= 0) return 0;
  Matrices matrices(backend, format, cols, options.bytes);
  const auto activations = backend.allocate(
      static_cast<std::uint64_t>(cols + kRows) * kElementBytes, MemoryKind::Device);
  const View x{activations.get(), 0, 1, cols, cols};
  const View y{activations.get(), x.bytes().size, 1, kRows, kRows};
  const std::vector<float> halves(static_cast<std::size_t>(cols), 0.5f);
  backend.upload(std::as_bytes(std::span(halves)), x.bytes());
  const auto start = std::chrono::steady_clock::now();
  double seconds = 0, bytes = 0;
  do {
    for (std::int64_t i = 0; i < matrices.count(); ++i)
      backend.matmul({.weight = matrices.at(i), .x = x, .y = y});
    backend.wait_for_all();
    bytes += static_cast<double>(matrices.count() * matrices.each());
    seconds = seconds_since(start);
  } while (seconds < options.seconds);
  return bytes / seconds;
}

}  // namespace moeflux
