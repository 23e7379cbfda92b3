// How blocks of GGUF lie in interleaved tiles (quant/interleave.h): the same bytes as in rows, in
// the order in which products want them. A tile has n rows, 16 but for the last one.
//
// Types with planes: a tile is three planes, one after the other. Element e of row r of a plane is
// element e * n + r.
//   halves  16-bit elements: the half floats of each block in their order, and the word of IQ4_XS
//   bytes   the packed scales of each block in their order
//   codes   dwords, `low_bits + high_bits` for every 32 columns. Four codes are a four: one in each
//           byte. The lower bits of 32 / low_bits codes are a dword, the fours in it beginning with
//           the lowest bits. If there are high bits, a dword with those of 32 / high_bits codes, in
//           the same way, comes after the dwords with the lower bits of these.
// A code is the integer of quant/block_codec.h plus `middle`; of types with a table, what is looked
// up there.
//
// Whole blocks (IQ1 to IQ3, TQ1, TQ2): block b of row r is block b * n + r.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/block_type.h"

namespace moeflux {

struct BlockTiling {
  bool has_planes = false;
  int halves = 0, bytes = 0;  // elements of a block
  int low_bits = 0, high_bits = 0;
  bool has_table = false;
  // Added to integers when they are made bytes from 0 on. None with biases: they are that already.
  int middle = 0;

  int bits() const { return low_bits + high_bits; }
};
BlockTiling block_tiling(BlockType type);

// Where the planes of a tile of n rows lie, in bytes from its begin.
struct TilePlanes {
  std::int64_t halves = 0, bytes = 0, codes = 0, end = 0;
};
TilePlanes tile_planes(BlockType type, std::int64_t n_rows, std::int64_t cols);

// A tile of n rows from blocks in rows to interleaved or back, in place. scratch: 16 rows.
void arrange_block_tile(BlockType type, std::byte* tile, std::int64_t n_rows, std::int64_t cols,
                        bool to_tiles, std::span<std::byte> scratch);

// Block `index` of all rows of an interleaved tile of n rows, one after the other. out: room
// for 16.
void take_blocks(BlockType type, const std::byte* tile, std::int64_t n_rows, std::int64_t cols,
                 std::int64_t index, std::byte* out) noexcept;

}  // namespace moeflux
