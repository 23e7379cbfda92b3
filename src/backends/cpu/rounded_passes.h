// How a product goes over tiles of weights (quant/interleave.h) and rows of activations, for
// instruction sets with registers of less than a line of a tile. Everything has internal linkage:
// each instruction set has its own.
//
// Codes are made bytes on their way from memory. Where that takes more than a shift, and for many
// rows of activations, it is done once, to scratch. A set of kernels has:
//
//   Packed<Bits>, PackedFp4, PackedInt4  how codes are read from a tile, the latter two of centered
//   Opened<Codes>                        weights, and the same from scratch
//   open<Codes>(from, cols, to)          codes of a tile to scratch
//   multiply<Codes, Digits, N>           a Kernel for N rows of activations
//   multiply_centered<Codes, Digits, N>  the same for centered weights, but for the factor
//
// and for blocks, whose scales and biases are floats in scratch:
//
//   Halves                               makes half floats floats (block_scales.h)
//   BlockCodes<Kind>                     how codes are read from a tile; kOpens: for many rows of
//                                        activations they are opened
//   OpenedBlocks<Kind, Digits>           the same from scratch
//   OpenedWholeBlocks<Digits>            from scratch, as open_whole_blocks() leaves them
//   open_span<Codes>(from, to)           codes of a span to scratch
//   multiply_blocks<Codes, Group, Biased, Digits, N>  a Kernel
#pragma once

#include <cstring>

#include "backends/cpu/block_scales.h"
#include "backends/cpu/rounded.h"
#include "backends/cpu/rounded_blocks.h"
#include "backends/cpu/rounded_factors.h"
#include "backends/cpu/with_format.h"

namespace moeflux::cpu {
namespace {

constexpr int kTokens = 4;                       // rows of activations at once
constexpr std::int64_t kFew = 4;                 // rows that do not repay a copy of the codes
constexpr std::int64_t kCacheBytes = 256 << 10;  // of activations that one pass goes over

constexpr int kLine = 64;   // bytes: a dword of each row of a tile
constexpr int kPiece = 32;  // codes of a row that are whole dwords, whatever their bits
constexpr int kFours = kPiece / 4;

// Asks for lines of codes: farther ahead than the processor does by itself.
template <int Bytes>
void prefetch(const std::byte* lines) noexcept {
  constexpr std::int64_t kAhead = 4 << 10;
#pragma GCC unroll 8
  for (int i = 0; i < Bytes; i += kLine) __builtin_prefetch(lines + kAhead + i);
}

inline const std::byte* bytes_of(const float* floats) noexcept {
  return static_cast<const std::byte*>(static_cast<const void*>(floats));
}

// Products of a tile with some rows of activations, as [row of activations][row of weights].
using Kernel = void (*)(const RoundedLayout& layout, const RoundedTile& tile,
                        const WeightFormat& format, const std::byte* x,
                        float (*y)[kTileRows]) noexcept;

// For 1 to kTokens rows of activations.
template <class Set, class Codes, int Digits>
constexpr Kernel kByTokens[kTokens] = {
    Set::template multiply<Codes, Digits, 1>, Set::template multiply<Codes, Digits, 2>,
    Set::template multiply<Codes, Digits, 3>, Set::template multiply<Codes, Digits, 4>};
template <class Set, class Codes, int Digits>
constexpr Kernel kCenteredByTokens[kTokens] = {Set::template multiply_centered<Codes, Digits, 1>,
                                               Set::template multiply_centered<Codes, Digits, 2>,
                                               Set::template multiply_centered<Codes, Digits, 3>,
                                               Set::template multiply_centered<Codes, Digits, 4>};

template <class Set, class Codes>
const Kernel* by_tokens(int digits) noexcept {
  return digits == 1 ? kByTokens<Set, Codes, 1> : kByTokens<Set, Codes, 2>;
}
template <class Set, class Codes>
const Kernel* centered_by_tokens(int digits) noexcept {
  return digits == 1 ? kCenteredByTokens<Set, Codes, 1> : kCenteredByTokens<Set, Codes, 2>;
}

// The tile that begins at `row` with rows [begin, end) of the activations.
void tile_products(const RoundedMatmul& op, const Kernel* kernels, const RoundedTile& tile,
                   const RowFactors& factors, std::int64_t row, std::int64_t begin,
                   std::int64_t end) noexcept {
  for (std::int64_t i = begin, n = 0; i < end; i += n) {
    n = end - i < kTokens ? end - i : kTokens;
    float y[kTokens][kTileRows];
    kernels[n - 1](*op.layout, tile, op.weight->format, op.x + i * op.layout->row_bytes, y);
    for (std::int64_t k = 0; k < n; ++k) {
      for (int r = 0; op.layout->centered != 0 && r < kTileRows; ++r) y[k][r] *= factors.rows[r];
      const std::int64_t target = op.rows_out != nullptr ? op.rows_out[i + k] : i + k;
      std::memcpy(op.y + target * op.y_stride + row - op.row, y[k],
                  static_cast<std::size_t>(tile.n_rows) * sizeof(float));
    }
  }
}

// The ways to multiply with one kind of codes.
struct Ways {
  const Kernel* packed;
  const Kernel* opened = nullptr;  // none: opening does not pay
  void (*open)(const std::byte* from, std::int64_t cols, std::byte* to) noexcept = nullptr;
};

void matmul(const RoundedMatmul& op, const Ways& ways) noexcept {
  const RoundedLayout& layout = *op.layout;
  const bool open = ways.opened != nullptr && op.n > kFew;
  const std::int64_t fit = kCacheBytes / layout.row_bytes / kTokens * kTokens;
  const std::int64_t pass = fit > kTokens ? fit : kTokens;
  for (std::int64_t begin = 0; begin < op.n; begin += pass) {
    const std::int64_t end = begin + pass < op.n ? begin + pass : op.n;
    for (std::int64_t row = op.row; row < op.row + op.n_rows; row += kTileRows) {
      RoundedTile tile = rounded_tile(op, row);
      const RowFactors factors(op, tile);
      if (open) {
        std::byte* bytes = rounded_scratch(op).codes;
        ways.open(tile.codes, layout.cols, bytes);
        tile.codes = bytes;
      }
      tile_products(op, open ? ways.opened : ways.packed, tile, factors, row, begin, end);
    }
  }
}

// ---- blocks

template <class Set, class Codes, int Group, bool Biased, int Digits>
constexpr Kernel kBlocksByTokens[kTokens] = {
    Set::template multiply_blocks<Codes, Group, Biased, Digits, 1>,
    Set::template multiply_blocks<Codes, Group, Biased, Digits, 2>,
    Set::template multiply_blocks<Codes, Group, Biased, Digits, 3>,
    Set::template multiply_blocks<Codes, Group, Biased, Digits, 4>};

// Calls open(tile), which gives a tile that `kernels` can multiply, for all of them.
template <class Open>
void for_block_tiles(const RoundedMatmul& op, const Kernel* kernels, const Open& open) noexcept {
  const RoundedLayout& layout = *op.layout;
  const std::int64_t fit = kCacheBytes / layout.row_bytes / kTokens * kTokens;
  const std::int64_t pass = fit > kTokens ? fit : kTokens;
  for (std::int64_t begin = 0; begin < op.n; begin += pass) {
    const std::int64_t end = begin + pass < op.n ? begin + pass : op.n;
    for (std::int64_t row = op.row; row < op.row + op.n_rows; row += kTileRows) {
      tile_products(op, kernels, open(rounded_block_tile(op, row)), RowFactors(), row, begin, end);
    }
  }
}

template <class Set, class Kind, int Digits>
void block_products(const RoundedMatmul& op) noexcept {
  using Codes = typename Set::template BlockCodes<Kind>;
  using OpenedCodes = typename Set::template OpenedBlocks<Kind, Digits>;
  const RoundedScratch memory = rounded_scratch(op);
  const BlockType type = op.weight->format.blocks;
  const std::int64_t cols = op.layout->cols;
  const auto open_scales = [&](const BlockTile& tile) {
    // Codes are asked for while what lies in front of them is taken.
    for (const std::byte* at = tile.halves; at < tile.codes; at += kLine) prefetch<kLine>(at);
    BlockScales<typename Set::Halves>(tile, memory).open(type, cols / block_shape(type).values);
    return RoundedTile{tile.codes, bytes_of(memory.scales), bytes_of(memory.biases), tile.n_rows};
  };
  if constexpr (Codes::kOpens) {
    if (op.n > kFew) {
      return for_block_tiles(
          op, kBlocksByTokens<Set, OpenedCodes, Kind::kGroup, Kind::kBiased, Digits>,
          [&](const BlockTile& tile) {
            RoundedTile opened = open_scales(tile);
            const std::byte* from = tile.codes;
            for (std::int64_t c = 0; c < cols; c += kPiece, from += Codes::kLines * kLine)
              Set::template open_span<Codes>(from, memory.codes + c * kTileRows);
            opened.codes = memory.codes;
            return opened;
          });
    }
  }
  for_block_tiles(op, kBlocksByTokens<Set, Codes, Kind::kGroup, Kind::kBiased, Digits>,
                  open_scales);
}

template <class Set, int Digits>
void whole_block_products(const RoundedMatmul& op) noexcept {
  using Codes = typename Set::template OpenedWholeBlocks<Digits>;
  const RoundedScratch memory = rounded_scratch(op);
  const auto open = [&](const BlockTile& tile) {
    open_whole_blocks(op.weight->format.blocks, tile, op.layout->cols, memory);
    return RoundedTile{memory.codes, bytes_of(memory.scales), nullptr, tile.n_rows};
  };
  op.layout->weight_group == 16
      ? for_block_tiles(op, kBlocksByTokens<Set, Codes, 16, false, Digits>, open)
      : for_block_tiles(op, kBlocksByTokens<Set, Codes, 32, false, Digits>, open);
}

template <class Set, int Digits>
void block_products(const RoundedMatmul& op) noexcept {
  const BlockType type = op.weight->format.blocks;
  if (!block_tiling(type).has_planes) return whole_block_products<Set, Digits>(op);
  with_block_kind(type, [&]<class Kind>() { block_products<Set, Kind, Digits>(op); });
}

// ---- all

template <class Set>
void matmul(const RoundedMatmul& op) noexcept {
  const WeightFormat& format = op.weight->format;
  const int digits = op.layout->digits;
  if (format.kind == WeightKind::Block)
    return digits == 1 ? block_products<Set, 1>(op) : block_products<Set, 2>(op);
  if (format.kind == WeightKind::Fp4) {
    using Codes = typename Set::PackedFp4;
    using OpenedCodes = typename Set::template Opened<Codes>;
    return matmul(op, {centered_by_tokens<Set, Codes>(digits),
                       centered_by_tokens<Set, OpenedCodes>(digits), Set::template open<Codes>});
  }
  if (op.layout->centered != 0)
    return matmul(op, {centered_by_tokens<Set, typename Set::PackedInt4>(digits)});
  with_bits(format.bits, [&]<int Bits>() {
    using Codes = typename Set::template Packed<Bits>;
    Ways ways{by_tokens<Set, Codes>(digits)};
    if constexpr (Bits == 3 || Bits == 5 || Bits == 6) {  // codes that cross bytes
      ways.opened = by_tokens<Set, typename Set::template Opened<Codes>>(digits);
      ways.open = Set::template open<Codes>;
    }
    matmul(op, ways);
  });
}

}  // namespace
}  // namespace moeflux::cpu
