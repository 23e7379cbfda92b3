#include "io/uring_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <liburing.h>

#include "base/error.h"

namespace moeflux {
namespace {

UringStatus classify(int error) {
  switch (error) {
    case ENOSYS:
    case EINVAL:
      return UringStatus::NotInKernel;
    case EPERM:
    case EACCES:
      return UringStatus::Forbidden;
    case ENOMEM:
      return UringStatus::NoMemory;
    default:
      return UringStatus::Failed;
  }
}

bool supports_reads(io_uring* ring) {
  io_uring_probe* probe = ::io_uring_get_probe_ring(ring);
  if (probe == nullptr) return false;
  const bool supported = io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                         io_uring_opcode_supported(probe, IORING_OP_READV) != 0 &&
                         io_uring_opcode_supported(probe, IORING_OP_READ_FIXED) != 0;
  ::io_uring_free_probe(probe);
  return supported;
}

constexpr unsigned kMaxRegions = 512;
constexpr std::size_t kRegionBytes = std::size_t{1}
                                     << 30;  // the kernel's limit for one registered buffer

std::uint64_t now_ns() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
}

// Registered files: two for each, whether it has a direct descriptor or not.
int file_index(const KernelRead& read) {
  return 2 * read.file + (read.direct ? 1 : 0);
}

}  // namespace

void RingCloser::operator()(io_uring* ring) const {
  ::io_uring_queue_exit(ring);
  delete ring;
}

UringSetup open_uring(int n_entries) {
  UringSetup setup;
  auto ring = std::make_unique<io_uring>();
  io_uring_params params{};
  params.flags = IORING_SETUP_CLAMP;
  const int rc =
      ::io_uring_queue_init_params(static_cast<unsigned>(n_entries), ring.get(), &params);
  if (rc < 0) {
    setup.error = -rc;
    setup.status = classify(-rc);
    return setup;
  }
  UniqueRing opened(ring.release());
  if (!supports_reads(opened.get())) {
    setup.error = ENOSYS;
    setup.status = UringStatus::NotInKernel;
    return setup;
  }
  setup.ring = std::move(opened);
  setup.status = UringStatus::Used;
  setup.n_entries =
      static_cast<int>(std::min<unsigned>(params.sq_entries, static_cast<unsigned>(n_entries)));
  return setup;
}

std::string describe_uring(UringStatus status, int error) {
  const std::string cause = std::generic_category().message(error);
  switch (status) {
    case UringStatus::Used:
      return "io_uring is used";
    case UringStatus::NotAsked:
      return "io_uring was not asked for";
    case UringStatus::NotInKernel:
      return fmt::format("io_uring is not in this kernel, or too old ({})", cause);
    case UringStatus::Forbidden:
      return fmt::format(
          "io_uring is forbidden here ({}): containers block it by default (allow io_uring_setup, "
          "io_uring_enter and "
          "io_uring_register in the seccomp profile), or sysctl kernel.io_uring_disabled is set",
          cause);
    case UringStatus::NoMemory:
      return fmt::format("io_uring could not lock its memory ({}): raise ulimit -l", cause);
    case UringStatus::Failed:
      break;
  }
  return fmt::format("io_uring could not be set up ({})", cause);
}

UringReader::UringReader(FileSet files, const ReaderOptions& options, UringSetup setup)
    : files_(std::move(files)),
      max_retries_(options.max_retries),
      filter_(options.filter),
      depth_(setup.n_entries),
      scratch_(files_, depth_, options.bounce_bytes),
      slots_(static_cast<std::size_t>(depth_)),
      ring_(std::move(setup.ring)) {
  MOEFLUX_ASSERT(ring_ != nullptr);
  for (int slot = depth_ - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  for (int i = scratch_.n_bounces() - 1; i >= 0; --i) free_bounces_.push_back(i);
  register_files();
  regions_error_ = -::io_uring_register_buffers_sparse(ring_.get(), kMaxRegions);
  if (regions_error_ == 0 && scratch_.n_bounces() > 0) {
    const auto first = scratch_.bounce(0);
    // A refusal (the limit of locked memory) is harmless: reads then name the memory by its
    // address.
    static_cast<void>(register_chunk({first.data(), first.size() * free_bounces_.size()}));
  }
}

UringReader::~UringReader() {
  drain();
}

void UringReader::register_files() {
  std::vector<int> descriptors;
  for (int file = 0; file < files_.size(); ++file) {
    descriptors.push_back(files_.buffered_fd(file));
    descriptors.push_back(files_.direct_fd(file));  // -1 keeps the place empty
  }
  if (descriptors.empty()) return;
  files_registered_ = ::io_uring_register_files(ring_.get(), descriptors.data(),
                                                static_cast<unsigned>(descriptors.size())) == 0;
}

int UringReader::register_memory(std::span<std::byte> region) {
  for (std::size_t at = 0; at < region.size(); at += kRegionBytes) {
    const auto chunk = region.subspan(at, std::min(kRegionBytes, region.size() - at));
    const int error = register_chunk(chunk);
    if (error != 0) return error;
    registered_bytes_ += chunk.size();
  }
  return 0;
}

int UringReader::register_chunk(std::span<std::byte> chunk) {
  if (regions_error_ != 0) return regions_error_;
  if (regions_.size() == kMaxRegions) return ENOSPC;
  const int index = static_cast<int>(regions_.size());
  const iovec memory{chunk.data(), chunk.size()};
  const __u64 tag = 0;
  const int rc = ::io_uring_register_buffers_update_tag(ring_.get(), static_cast<unsigned>(index),
                                                        &memory, &tag, 1);
  if (rc < 0) return -rc;
  regions_.push_back({chunk.data(), chunk.data() + chunk.size(), index});
  std::sort(regions_.begin(), regions_.end(),
            [](const Region& a, const Region& b) { return std::less<>()(a.begin, b.begin); });
  return 0;
}

int UringReader::find_region(const iovec& part) const {
  std::byte* const begin = static_cast<std::byte*>(part.iov_base);
  auto after = std::upper_bound(regions_.begin(), regions_.end(), begin,
                                [](std::byte* address, const Region& region) {
                                  return std::less<>()(address, region.begin);
                                });
  if (after == regions_.begin()) return -1;
  const Region& region = *--after;
  return begin < region.end && part.iov_len <= static_cast<std::size_t>(region.end - begin)
             ? region.index
             : -1;
}

void UringReader::submit(std::span<const ReadOp> ops) {
  for (const ReadOp& op : ops) tracker_.add(op, files_, kPlanLimits, waiting_);
  reap();
  start_waiting();
  enter(0);
}

std::size_t UringReader::wait(std::span<ReadResult> results, bool block) {
  if (results.empty()) return 0;
  while (true) {
    reap();
    start_waiting();
    const std::size_t n = tracker_.take_results(results, stats_);
    if (n > 0 || !block || in_flight() == 0) {
      enter(0);
      return n;
    }
    const std::uint64_t start = now_ns();
    enter(1);
    stats_.wait_ns += now_ns() - start;
  }
}

bool UringReader::has_room_for(const Piece& piece) const {
  return !free_slots_.empty() && (piece.route != Route::Bounced || !free_bounces_.empty());
}

void UringReader::start_waiting() {
  while (!waiting_.empty() && has_room_for(waiting_.front())) {
    const Piece piece = waiting_.pop();
    if (tracker_.has_failed(piece.op)) {
      tracker_.finish_piece(piece.op, 0);
      continue;
    }
    const int index = free_slots_.back();
    free_slots_.pop_back();
    Slot& slot = slots_[static_cast<std::size_t>(index)];
    std::span<std::byte> bounce;
    if (piece.route == Route::Bounced) {
      slot.bounce = free_bounces_.back();
      free_bounces_.pop_back();
      bounce = scratch_.bounce(slot.bounce);
    }
    slot.transfer.start(piece, files_.alignment(piece.file), scratch_.edges(index), bounce);
    ask_kernel(index);
  }
}

void UringReader::ask_kernel(int index) {
  io_uring_sqe* entry = ::io_uring_get_sqe(ring_.get());
  MOEFLUX_ASSERT(entry != nullptr);  // the ring has an entry for every slot
  prepare(entry, slots_[static_cast<std::size_t>(index)].transfer.read());
  ::io_uring_sqe_set_data64(entry, static_cast<__u64>(index));
}

void UringReader::prepare(io_uring_sqe* entry, const KernelRead& read) const {
  const int fd = files_registered_ ? file_index(read)
                 : read.direct     ? files_.direct_fd(read.file)
                                   : files_.buffered_fd(read.file);
  const iovec& first = read.parts[0];
  const int region = read.n_parts == 1 ? find_region(first) : -1;
  if (read.n_parts > 1) {
    ::io_uring_prep_readv(entry, fd, read.parts.data(), static_cast<unsigned>(read.n_parts),
                          read.offset);
  } else if (region >= 0) {
    ::io_uring_prep_read_fixed(entry, fd, first.iov_base, static_cast<unsigned>(first.iov_len),
                               read.offset, region);
  } else {
    ::io_uring_prep_read(entry, fd, first.iov_base, static_cast<unsigned>(first.iov_len),
                         read.offset);
  }
  unsigned flags = files_registered_ ? IOSQE_FIXED_FILE : 0;
  // A buffered read copies out of the page cache, and would do so inside our system call: leave it
  // to the kernel's own threads.
  if (!read.direct) flags |= IOSQE_ASYNC;
  ::io_uring_sqe_set_flags(entry, flags);
}

// Hands new entries to the kernel and waits for completions; may return early.
void UringReader::enter(unsigned wait_for) {
  if (wait_for == 0 && ::io_uring_sq_ready(ring_.get()) == 0) return;
  const int rc = ::io_uring_submit_and_wait(ring_.get(), wait_for);
  if (rc >= 0 || rc == -EINTR) return;
  if (rc != -EAGAIN && rc != -EBUSY) {
    fail(Errc::Io, "io_uring stopped working: {}", std::generic_category().message(-rc));
  }
  std::this_thread::yield();  // short of kernel memory: entries stay queued and go with the next
                              // call
}

void UringReader::reap() {
  std::array<io_uring_cqe*, 64> batch;
  while (true) {
    const unsigned n = ::io_uring_peek_batch_cqe(ring_.get(), batch.data(), batch.size());
    for (unsigned i = 0; i < n; ++i) {
      const int index = static_cast<int>(::io_uring_cqe_get_data64(batch[i]));
      Transfer& transfer = slots_[static_cast<std::size_t>(index)].transfer;
      std::int64_t result = batch[i]->res;
      if (filter_) result = filter_(transfer.read(), result);
      if (transfer.advance(result, max_retries_, stats_) || stopping_) {
        finish(index);
      } else {
        ask_kernel(index);
      }
    }
    ::io_uring_cq_advance(ring_.get(), n);
    if (n < batch.size()) return;
  }
}

void UringReader::finish(int index) {
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  tracker_.finish_piece(slot.transfer.piece().op, slot.transfer.error());
  if (slot.bounce >= 0) free_bounces_.push_back(slot.bounce);
  slot.bounce = -1;
  free_slots_.push_back(index);
}

// The kernel may write to the caller's memory until every read it has got is complete, even after
// the ring is closed. Entries it has not got are dropped with the ring.
void UringReader::drain() noexcept {
  stopping_ = true;
  while (slots_.size() - free_slots_.size() > ::io_uring_sq_ready(ring_.get())) {
    io_uring_cqe* completion = nullptr;
    const int rc = ::io_uring_wait_cqe(ring_.get(), &completion);
    if (rc == 0) {
      reap();
    } else if (rc != -EINTR) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // completions arrive all the same
    }
  }
}

ReaderInfo UringReader::info() const {
  return {.name = "uring",
          .uring = UringStatus::Used,
          .uring_errno = 0,
          .queue_depth = depth_,
          .direct_files = files_.n_direct(),
          .buffered_files = files_.size() - files_.n_direct(),
          .files_registered = files_registered_,
          .registered_bytes = registered_bytes_,
          .memory_bytes = scratch_.bytes()};
}

}  // namespace moeflux
