// How an op becomes reads that the kernel accepts. Pure arithmetic.
//
// An op is cut into pieces that may be read in any order. Most ops are one piece: the blocks that
// lie wholly inside the op go straight to their place, the partial blocks at its two ends through a
// small edge buffer, in one vectored read. Only when pointer and offset disagree does a piece go
// through a bounce buffer, and then it is no larger than one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

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

}  // namespace moeflux
