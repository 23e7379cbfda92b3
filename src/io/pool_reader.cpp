#include "io/pool_reader.h"

#include <cerrno>
#include <chrono>
#include <exception>

#include <sys/uio.h>

#include "base/error.h"

namespace moeflux {

PoolReader::PoolReader(FileSet files, const ReaderOptions& options, UringStatus why, int why_errno)
    : files_(std::move(files)),
      max_retries_(options.max_retries),
      filter_(options.filter),
      why_(why),
      why_errno_(why_errno),
      n_threads_(options.threads),
      scratch_(files_, n_threads_, static_cast<std::size_t>(n_threads_) * kBounceBytes) {
  threads_.reserve(static_cast<std::size_t>(n_threads_));
  try {
    for (int slot = 0; slot < n_threads_; ++slot)
      threads_.emplace_back([this, slot] { work(slot); });
  } catch (const std::exception& error) {
    if (threads_.empty())
      fail(Errc::Io, "no thread can be started to read files: {}", error.what());
    // Fewer threads read as correctly as more.
  }
}

PoolReader::~PoolReader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  threads_.clear();  // joins: no read goes on after this
}

void PoolReader::submit(std::span<const ReadOp> ops) {
  {
    const std::lock_guard lock(mutex_);
    for (const ReadOp& op : ops) tracker_.add(op, files_, kPlanLimits, waiting_);
  }
  if (ops.size() == 1) {
    work_.notify_one();
  } else {
    work_.notify_all();
  }
}

std::size_t PoolReader::wait(std::span<ReadResult> results, bool block) {
  if (results.empty()) return 0;
  std::unique_lock lock(mutex_);
  if (block && !tracker_.has_results() && tracker_.in_flight() > 0) {
    const auto start = std::chrono::steady_clock::now();
    done_.wait(lock, [this] { return tracker_.has_results(); });
    stats_.wait_ns += static_cast<std::uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
  }
  return tracker_.take_results(results, stats_);
}

std::size_t PoolReader::in_flight() const {
  const std::lock_guard lock(mutex_);
  return tracker_.in_flight();
}

void PoolReader::cancel_waiting() {
  const std::lock_guard lock(mutex_);
  tracker_.cancel(waiting_);
}

void PoolReader::work(int slot) {
  Transfer transfer;
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    const Piece piece = waiting_.pop();
    int error = 0;
    if (!tracker_.has_failed(piece.op)) {
      ReaderStats counted;
      lock.unlock();
      const auto bounce =
          piece.route == Route::Bounced ? scratch_.bounce(slot) : std::span<std::byte>();
      transfer.start(piece, files_.alignment(piece.file), scratch_.edges(slot), bounce);
      carry(transfer, counted);
      error = transfer.error();
      lock.lock();
      stats_ += counted;
    }
    tracker_.finish_piece(piece.op, error);
    if (tracker_.has_results()) done_.notify_one();
  }
}

void PoolReader::carry(Transfer& transfer, ReaderStats& stats) const {
  std::int64_t result = 0;
  do {
    const KernelRead& read = transfer.read();
    const int fd = read.direct ? files_.direct_fd(read.file) : files_.buffered_fd(read.file);
    const ssize_t n =
        ::preadv(fd, read.parts.data(), read.n_parts, static_cast<off_t>(read.offset));
    result = n < 0 ? -errno : n;
    if (filter_) result = filter_(read, result);
  } while (!transfer.advance(result, max_retries_, stats));
}

ReaderInfo PoolReader::info() const {
  return {.name = "pool",
          .uring = why_,
          .uring_errno = why_errno_,
          .queue_depth = static_cast<int>(threads_.size()),
          .direct_files = files_.n_direct(),
          .buffered_files = files_.size() - files_.n_direct(),
          .files_registered = false,
          .registered_bytes = 0,
          .memory_bytes = scratch_.bytes()};
}

ReaderStats PoolReader::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace moeflux
