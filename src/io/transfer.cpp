#include "io/transfer.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>

namespace moeflux {

bool lands_in_place(std::uint64_t offset, const std::byte* out, const FileAlignment& alignment) {
  const std::uint64_t to_block = round_up(offset, alignment.offset) - offset;
  return (std::bit_cast<std::uintptr_t>(out) + to_block) % alignment.memory == 0;
}

Route choose_route(const ReadOp& op, const FileAlignment& alignment) {
  if (!alignment.direct()) return Route::Buffered;
  const bool short_read = fits_edges(op.offset, op.out.size(), alignment);
  if (short_read || lands_in_place(op.offset, op.out.data(), alignment)) return Route::Direct;
  return Route::Bounced;
}

bool out_of_range(const ReadOp& op) {
  // One block less than the largest offset, so that rounding up cannot overflow either.
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max() - (1 << 20);
  return op.out.size() > kLargest || op.offset > kLargest - op.out.size();
}

namespace {

// Far more than signals can cause: the bound only keeps a broken driver from hanging the caller.
constexpr int kMaxInterruptions = 1000;

bool is_interruption(int error) {
  return error == EINTR || error == EAGAIN || error == ECANCELED;
}
bool is_transient(int error) {
  return error == EIO || error == ETIMEDOUT || error == ENOMEM;
}

}  // namespace

std::size_t KernelRead::bytes() const {
  std::size_t sum = 0;
  for (int i = 0; i < n_parts; ++i) sum += parts[static_cast<std::size_t>(i)].iov_len;
  return sum;
}

void Transfer::start(const Piece& piece, const FileAlignment& alignment, std::span<std::byte> edges,
                     std::span<std::byte> bounce) {
  piece_ = piece;
  alignment_ = alignment;
  edges_ = edges;
  bounce_ = bounce;
  done_ = 0;
  direct_ = piece.route != Route::Buffered;
  interruptions_ = retries_ = error_ = 0;
  aim();
}

// Points read_ at what is still missing.
void Transfer::aim() {
  const std::uint64_t at = piece_.offset + done_;
  read_.file = piece_.file;
  read_.direct = direct_;
  read_.n_parts = 0;
  skip_ = 0;
  scratch_ = nullptr;
  if (direct_) {
    aim_past_page_cache(at, piece_.offset + piece_.bytes, piece_.out + done_);
  } else {
    read_.offset = at;
    add_part(piece_.out + done_, piece_.bytes - done_);
  }
}

void Transfer::aim_past_page_cache(std::uint64_t at, std::uint64_t end, std::byte* out) {
  const std::uint64_t block = alignment_.offset;
  const std::uint64_t first = round_down(at, block);
  const std::uint64_t last = round_up(end, block);
  read_.offset = first;
  skip_ = static_cast<std::size_t>(at - first);
  if (piece_.route == Route::Bounced ||
      fits_edges(at, static_cast<std::size_t>(end - at), alignment_)) {
    scratch_ = piece_.route == Route::Bounced ? bounce_.data() : edges_.data();
    add_part(scratch_, last - first);
    return;
  }
  const std::uint64_t inside = round_up(at, block);
  const std::uint64_t inside_end = round_down(end, block);
  if (inside > at) add_part(edges_.data(), block);
  add_part(out + (inside - at), inside_end - inside);
  if (end > inside_end) add_part(edges_.data() + block, block);
}

void Transfer::add_part(std::byte* data, std::uint64_t bytes) {
  read_.parts[static_cast<std::size_t>(read_.n_parts++)] = {data, static_cast<std::size_t>(bytes)};
}

bool Transfer::advance(std::int64_t result, int max_retries, ReaderStats& stats) {
  ++stats.kernel_reads;
  if (result < 0) return take_error(static_cast<int>(-result), max_retries, stats);
  stats.kernel_bytes += static_cast<std::uint64_t>(result);
  return take_bytes(static_cast<std::size_t>(result), stats);
}

bool Transfer::take_error(int error, int max_retries, ReaderStats& stats) {
  if (is_interruption(error) && interruptions_ < kMaxInterruptions) {
    ++interruptions_;
    ++stats.retries;
    return false;
  }
  if (is_transient(error) && retries_ < max_retries) {
    ++retries_;
    ++stats.retries;
    return false;
  }
  if (error == EINVAL && direct_) {  // an alignment the filesystem did not announce
    direct_ = false;
    ++stats.fallbacks;
    aim();
    return false;
  }
  error_ = error;
  return true;
}

bool Transfer::take_bytes(std::size_t n, ReaderStats& stats) {
  if (n == 0) {
    error_ = kEndOfFile;
    return true;
  }
  const std::size_t missing = piece_.bytes - done_;
  const std::size_t wanted = n > skip_ ? std::min(n - skip_, missing) : 0;
  if (direct_) stats.copied_bytes += copy_out(wanted);
  done_ += wanted;
  if (done_ == piece_.bytes) return true;
  // Direct I/O stops inside a block only where the file ends, or the drive gave up on it: a
  // byte-exact read settles it.
  if (direct_ && n % alignment_.offset != 0) {
    direct_ = false;
    ++stats.fallbacks;
  }
  aim();
  return false;
}

// Moves what did not land in place among the first `wanted` bytes; returns how many bytes that was.
std::size_t Transfer::copy_out(std::size_t wanted) const {
  std::byte* const out = piece_.out + done_;
  if (wanted == 0) return 0;
  if (scratch_ != nullptr) {
    std::memcpy(out, scratch_ + skip_, wanted);
    return wanted;
  }
  const std::size_t block = alignment_.offset;
  const std::size_t head = skip_ == 0 ? 0 : std::min(wanted, block - skip_);
  if (head > 0) std::memcpy(out, edges_.data() + skip_, head);
  const std::size_t missing = piece_.bytes - done_;
  const std::size_t tail = (skip_ + missing) % block;
  const std::size_t before_tail = missing - tail;
  if (wanted <= before_tail) return head;
  std::memcpy(out + before_tail, edges_.data() + block, wanted - before_tail);
  return head + (wanted - before_tail);
}

}  // namespace moeflux
