// Products of blocks of GGUF with rounded activations (rounded.h): what their kernels share.
//
// A tile is opened to scratch before it is multiplied. Its scales, and biases, become floats
// [group][row] for any number of activations: that takes little beside products, and so products
// need not know how a type packs them, unless a scale is a half float or a power of two. Types with
// planes have codes that kernels read from the tile, or open to bytes for many rows of activations.
// Whole blocks are always opened.
#pragma once

#include "backends/cpu/rounded.h"
#include "quant/block_tile.h"

namespace moeflux::cpu {

// A tile of types with planes: 16 rows, those beyond the last of the weight being zero. Of whole
// blocks: n_rows of them beside each other at `codes`.
struct BlockTile {
  const std::byte *halves, *bytes, *codes;
  std::int64_t n_rows;  // that are there
};
// The one that begins at `row`; a short one is copied to the scratch of the call.
BlockTile rounded_block_tile(const RoundedMatmul& op, std::int64_t row) noexcept;

// Whole blocks as codes from 0 on, [four][row][4] as RoundedScratch has them, and their scales.
void open_whole_blocks(BlockType type, const BlockTile& tile, std::int64_t cols,
                       const RoundedScratch& out) noexcept;

void rounded_blocks_scalar(const RoundedMatmul& op) noexcept;

// How codes of a type are read and multiplied. Table: E2M1 numbers, or those of IQ4.
enum class CodeTable : std::uint8_t { None, E2m1, NonLinear };
// How scales lie in a tile: a half float for each group, an exponent, or otherwise.
enum class ScaleKind : std::uint8_t { Half, Power, Packed };

template <int Low, int High, CodeTable Table, ScaleKind Scale, int Group, bool Biased>
struct BlockKind {
  static constexpr int kLow = Low, kHigh = High, kGroup = Group;
  static constexpr CodeTable kTable = Table;
  static constexpr ScaleKind kScale = Scale;
  static constexpr bool kBiased = Biased;
  // Integers of 8 bits: two products do not fit into 16 bits.
  static constexpr bool kWide = Low == 8 || Table == CodeTable::NonLinear;
};

// Calls visit.operator()<BlockKind<...>>() for a type with planes.
template <class Visit>
void with_block_kind(BlockType type, const Visit& visit) noexcept {
  using enum CodeTable;
  using enum ScaleKind;
  switch (type) {
    case BlockType::Q4_0:
      return visit.template operator()<BlockKind<4, 0, None, Half, 32, false>>();
    case BlockType::Q4_1:
    case BlockType::Q4_K:
      return visit.template operator()<BlockKind<4, 0, None, Packed, 32, true>>();
    case BlockType::Q5_0:
      return visit.template operator()<BlockKind<4, 1, None, Half, 32, false>>();
    case BlockType::Q5_1:
    case BlockType::Q5_K:
      return visit.template operator()<BlockKind<4, 1, None, Packed, 32, true>>();
    case BlockType::Q8_0:
      return visit.template operator()<BlockKind<8, 0, None, Half, 32, false>>();
    case BlockType::Q2_K:
      return visit.template operator()<BlockKind<2, 0, None, Packed, 16, true>>();
    case BlockType::Q3_K:
      return visit.template operator()<BlockKind<2, 1, None, Packed, 16, false>>();
    case BlockType::Q6_K:
      return visit.template operator()<BlockKind<4, 2, None, Packed, 16, false>>();
    case BlockType::IQ4_NL:
      return visit.template operator()<BlockKind<4, 0, NonLinear, Half, 32, false>>();
    case BlockType::IQ4_XS:
      return visit.template operator()<BlockKind<4, 0, NonLinear, Packed, 32, false>>();
    case BlockType::MXFP4:
      return visit.template operator()<BlockKind<4, 0, E2m1, Power, 32, false>>();
    case BlockType::NVFP4:
      return visit.template operator()<BlockKind<4, 0, E2m1, Packed, 16, false>>();
    default:
      return;
  }
}

}  // namespace moeflux::cpu
