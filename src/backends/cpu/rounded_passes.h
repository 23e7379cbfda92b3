// How a product goes over tiles of weights (quant/interleave.h) and rows of activations, for
// instruction sets with registers of less than a line of a tile. Everything has internal linkage:
// each instruction set has its own.
//
// Codes are made bytes on their way from memory. Where that takes more than a shift, and for many
// rows of activations, it is done once, to scratch. A set of kernels has:
//
//   Packed<Bits>, Opened<Bits>    how codes are read from a tile and from scratch
//   open<Bits>(from, cols, to)    codes of a tile to scratch
//   multiply<Codes, Digits, N>    a Kernel for N rows of activations
#pragma once

#include <cstring>

#include "backends/cpu/rounded.h"
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

// Products of a tile with some rows of activations, as [row of activations][row of weights].
using Kernel = void (*)(const RoundedLayout& layout, const RoundedTile& tile, DType scale_dtype,
                        const std::byte* x, float (*y)[kTileRows]) noexcept;

// For 1 to kTokens rows of activations.
template <class Set, class Codes, int Digits>
constexpr Kernel kByTokens[kTokens] = {
    Set::template multiply<Codes, Digits, 1>, Set::template multiply<Codes, Digits, 2>,
    Set::template multiply<Codes, Digits, 3>, Set::template multiply<Codes, Digits, 4>};

template <class Set, class Codes>
const Kernel* by_tokens(int digits) noexcept {
  return digits == 1 ? kByTokens<Set, Codes, 1> : kByTokens<Set, Codes, 2>;
}

// The tile that begins at `row` with rows [begin, end) of the activations.
void tile_products(const RoundedMatmul& op, const Kernel* kernels, const RoundedTile& tile,
                   std::int64_t row, std::int64_t begin, std::int64_t end) noexcept {
  for (std::int64_t i = begin, n = 0; i < end; i += n) {
    n = end - i < kTokens ? end - i : kTokens;
    float y[kTokens][kTileRows];
    kernels[n - 1](*op.layout, tile, op.weight->format.scale_dtype, op.x + i * op.layout->row_bytes,
                   y);
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t target = op.rows_out != nullptr ? op.rows_out[i + k] : i + k;
      std::memcpy(op.y + target * op.y_stride + row - op.row, y[k],
                  static_cast<std::size_t>(tile.n_rows) * sizeof(float));
    }
  }
}

template <class Set, int Bits>
void matmul_bits(const RoundedMatmul& op) noexcept {
  const RoundedLayout& layout = *op.layout;
  constexpr bool kDense = Bits == 3 || Bits == 5 || Bits == 6;  // codes that cross bytes
  const bool open = kDense && op.n > kFew;
  const Kernel* kernels = by_tokens<Set, typename Set::template Packed<Bits>>(layout.digits);
  if constexpr (kDense) {
    if (open) kernels = by_tokens<Set, typename Set::template Opened<Bits>>(layout.digits);
  }
  const std::int64_t fit = kCacheBytes / layout.row_bytes / kTokens * kTokens;
  const std::int64_t pass = fit > kTokens ? fit : kTokens;
  for (std::int64_t begin = 0; begin < op.n; begin += pass) {
    const std::int64_t end = begin + pass < op.n ? begin + pass : op.n;
    for (std::int64_t row = op.row; row < op.row + op.n_rows; row += kTileRows) {
      RoundedTile tile = rounded_tile(op, row);
      if (open) {
        std::byte* bytes = rounded_scratch(op).codes;
        Set::template open<Bits>(tile.codes, layout.cols, bytes);
        tile.codes = bytes;
      }
      tile_products(op, kernels, tile, row, begin, end);
    }
  }
}

template <class Set>
void matmul(const RoundedMatmul& op) noexcept {
  with_bits(op.weight->format.bits, [&]<int Bits>() { matmul_bits<Set, Bits>(op); });
}

}  // namespace
}  // namespace moeflux::cpu
