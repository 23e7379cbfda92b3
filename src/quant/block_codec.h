// What blocks of GGUF (quant/block_type.h) hold: the reference that faster ways are checked
// against.
//
// A block is integers and, for each of its groups of 16 or 32, a scale and perhaps a bias:
//   w = scale * integer + bias
// Scales, biases and products are exact in a float, so that only the sum is rounded, once. Where a
// format has scales of scales, small numbers in halves, eighths and quarters, or one scale for more
// than 32 numbers, that is part of the scale here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "quant/block_type.h"

namespace moeflux {

struct BlockParts {
  alignas(64) std::array<std::int8_t, kMostBlockValues> integers;
  std::array<float, kMostBlockValues / 16> scales;
  std::array<float, kMostBlockValues / 16> biases;  // of types that have them
};

// How its values share scales.
struct BlockGroups {
  int values = 32;  // of a group: 16 or 32
  bool has_biases = false;
};
BlockGroups block_groups(BlockType type);

void split_block(BlockType type, const std::byte* block, BlockParts& out) noexcept;

// `n_blocks` blocks, one after the other, as floats: out[n_blocks * block_shape(type).values].
void decode_blocks(BlockType type, const std::byte* blocks, std::int64_t n_blocks,
                   float* out) noexcept;

}  // namespace moeflux
