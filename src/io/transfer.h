// How an op becomes reads that the kernel accepts, and one of these reads on its way.
//
// An op is cut into pieces that may be read in any order. Most ops are one piece: the blocks that
// lie wholly inside the op go straight to their place, the partial blocks at its two ends through a
// small edge buffer, in one vectored read. Only when pointer and offset disagree does a piece go
// through a bounce buffer, and then it is no larger than one. A Transfer carries out one piece.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <sys/uio.h>

#include "io/async_reader.h"
#include "io/file_set.h"

namespace moeflux {

enum class Route : std::uint8_t {
  Buffered,  // through the page cache: no rules
  Direct,    // in place, but for the ends
  Bounced,   // through a bounce buffer, then copied
};

struct Piece {
  std::uint32_t op = 0;  // as OpTracker numbers it
  int file = 0;
  Route route = Route::Buffered;
  std::uint64_t offset = 0;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
};

struct PlanLimits {
  std::size_t bounce_bytes;  // size of a bounce buffer: a multiple of every block size
  std::size_t piece_bytes;   // no piece in place is larger; the same
};

constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t power_of_two) {
  return value & ~(power_of_two - 1);
}
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t power_of_two) {
  return round_down(value + power_of_two - 1, power_of_two);
}

// Blocks of a read this short go through the edge buffer alone, which holds two.
constexpr bool fits_edges(std::uint64_t offset, std::size_t bytes, const FileAlignment& alignment) {
  return round_up(offset + bytes, alignment.offset) - round_down(offset, alignment.offset) <=
         2 * alignment.offset;
}

// True when the blocks inside the read can land in place.
bool lands_in_place(std::uint64_t offset, const std::byte* out, const FileAlignment& alignment);

Route choose_route(const ReadOp& op, const FileAlignment& alignment);

// A range that no file can have: its end is not a file offset.
bool out_of_range(const ReadOp& op);

// Calls emit(Piece) for each piece of `op`, in file order; none for an empty op. Piece::op is left
// to the caller.
template <class Emit>
void for_each_piece(const ReadOp& op, const FileAlignment& alignment, const PlanLimits& limits,
                    Emit emit) {
  const Route route = choose_route(op, alignment);
  const std::size_t limit = route == Route::Bounced ? limits.bounce_bytes : limits.piece_bytes;
  const std::uint64_t end = op.offset + op.out.size();
  std::uint64_t at = op.offset;
  while (at < end) {
    // Cut at a block boundary, so that no block is read twice.
    const std::uint64_t stop = std::min(end, round_down(at, alignment.offset) + limit);
    emit(Piece{.op = 0,
               .file = op.file,
               .route = route,
               .offset = at,
               .out = op.out.data() + (at - op.offset),
               .bytes = static_cast<std::size_t>(stop - at)});
    at = stop;
  }
}

// A read as the kernel is asked for it.
struct KernelRead {
  int file = 0;
  bool direct = false;  // which descriptor of the file
  std::uint64_t offset = 0;
  std::array<iovec, 3>
      parts{};  // leading edge, blocks in place, trailing edge; as many as there are
  int n_parts = 0;
  std::size_t bytes() const;
};

// Sees every answer of the kernel (bytes, or minus an errno) and may replace it. Tests put faults
// here. May be called from several threads at once.
using ResultFilter = std::function<std::int64_t(const KernelRead&, std::int64_t)>;

// One piece on its way: says which read to submit to the kernel, takes the kernel's answer, and
// says whether to go on. The same state machine serves every reader; they differ in how a read is
// submitted.
class Transfer {
 public:
  // `edges` holds two blocks of any file, `bounce` one bounce buffer (empty unless the piece is
  // Bounced). Both are aligned to a block and used until the transfer is done.
  void start(const Piece& piece, const FileAlignment& alignment, std::span<std::byte> edges,
             std::span<std::byte> bounce);

  const KernelRead& read() const { return read_; }

  // Takes the kernel's answer to read(). Returns true when the piece is done (see error()), false
  // when read() must be asked again. A transient error is repeated `max_retries` times.
  bool advance(std::int64_t result, int max_retries, ReaderStats& stats);

  int error() const { return error_; }
  const Piece& piece() const { return piece_; }

 private:
  void aim();
  void aim_past_page_cache(std::uint64_t at, std::uint64_t end, std::byte* out);
  void add_part(std::byte* data, std::uint64_t bytes);
  bool take_bytes(std::size_t n, ReaderStats& stats);
  std::size_t copy_out(std::size_t wanted) const;
  bool take_error(int error, int max_retries, ReaderStats& stats);

  Piece piece_;
  FileAlignment alignment_;
  std::span<std::byte> edges_;
  std::span<std::byte> bounce_;
  KernelRead read_;
  std::byte* scratch_ = nullptr;  // where the whole read goes when no part of it goes in place
  std::size_t skip_ = 0;          // bytes of the read before the first wanted one
  std::size_t done_ = 0;          // bytes of the piece that are in place
  bool direct_ = false;
  int interruptions_ = 0;
  int retries_ = 0;
  int error_ = 0;
};

}  // namespace moeflux
