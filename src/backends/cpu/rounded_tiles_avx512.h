// Products with tiles (quant/interleave.h) for AVX-512: the 16 rows are the lanes of a register. A
// dword of activations, in all lanes, times a register of codes advances 16 products at once, and
// the sums of a group need no shuffling.
//
// Few rows of activations take codes on their way from memory. For many, codes go to bytes in
// scratch once, since all of them take each.
#pragma once

#include "backends/cpu/block_codes_avx512.h"

namespace moeflux::cpu {
namespace {

constexpr std::int64_t kCacheBytes = 512 << 10;  // of activations that one pass goes over
constexpr int kTokens = 8;                       // rows of activations at once
constexpr std::int64_t kFew = 7;                 // rows that do not repay a copy of the codes

// The sum of products of codes from the sums of their digits. Local arrays of sums, not members:
// only those stay in registers.
template <int Digits>
__m512i total(__m512i high, __m512i low) noexcept {
  return Digits == 1 ? high : _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
}

// Where the products of a tile with some rows of activations go, and what those of centered weights
// are multiplied by.
struct Outputs {
  float* y[kTokens];
  __mmask16 lanes;
  const float* factors;

  Outputs(const RoundedMatmul& op, std::int64_t first, std::int64_t n, std::int64_t row,
          std::int64_t n_rows, const float* row_factors) noexcept
      : lanes(first_lanes(n_rows)), factors(row_factors) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = row_of_y(op, first + i, row);
  }
  // The i-th, once it is complete.
  void put(std::int64_t i, __m512 product) const noexcept {
    _mm512_mask_storeu_ps(y[i], lanes, product);
  }
};

// ---- few rows

template <class Dot, int Bits, int Digits, int N>
void few_tokens(const RoundedLayout& layout, const RoundedTile& tile, const WeightFormat& format,
                const std::byte* x, const Outputs& out) noexcept {
  using Unit = CodeUnit<Bits>;
  constexpr int kChains = N == 1 ? 2 : 1;  // sums that do not wait for each other
  __m512 acc[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) acc[i] = _mm512_setzero_ps();
  const std::byte* from = tile.codes;
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    __m512i sums[kChains][Digits][N];
#pragma GCC unroll 4
    for (int i = 0; i < N * Digits * kChains; ++i)
      sums[i / N / Digits][i / N % Digits][i % N] = _mm512_setzero_si512();
    const std::byte* digits = x + g * layout.group;
#pragma GCC unroll 4
    for (int c = 0; c < layout.group; c += 4 * Unit::kRegisters, from += Unit::kBytes) {
      __m512i codes[Unit::kRegisters];
      Unit::load(from, codes);
#pragma GCC unroll 5
      for (int line = 0; line < Unit::kBytes; line += 64)
        _mm_prefetch(at(from, kAhead + line), kAheadHint);
#pragma GCC unroll 8
      for (int k = 0; k < Unit::kRegisters; ++k) {
#pragma GCC unroll 2
        for (int digit = 0; digit < Digits; ++digit) {
#pragma GCC unroll 4
          for (int i = 0; i < N; ++i) {
            sums[k % kChains][digit][i] = Dot::template add<Bits == 8>(
                sums[k % kChains][digit][i], codes[k],
                digits + digit * layout.low_at + i * layout.row_bytes + c + 4 * k);
          }
        }
      }
    }
    const __m512 scales = load_scales(format.scale_dtype, tile.scales, g);
    const __m512 biases = load_biases(format, tile, g, scales);
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      __m512i sum = total<Digits>(sums[0][0][i], sums[0][Digits - 1][i]);
      if (kChains == 2) {
        sum = _mm512_add_epi32(
            sum, total<Digits>(sums[kChains - 1][0][i], sums[kChains - 1][Digits - 1][i]));
      }
      acc[i] = add_group(layout, acc[i], sum, scales, biases, x + i * layout.row_bytes, g);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) out.put(i, acc[i]);
}

using FewTokens = void (*)(const RoundedLayout& layout, const RoundedTile& tile,
                           const WeightFormat& format, const std::byte* x,
                           const Outputs& out) noexcept;
struct FewKernels {
  FewTokens one, two, four;
};

[[maybe_unused]] void few_rows(const RoundedMatmul& op, const FewKernels& kernels) noexcept {
  const RoundedLayout& layout = *op.layout;
  for (std::int64_t row = op.row; row < op.row + op.n_rows; row += kTileRows) {
    const RoundedTile tile = rounded_tile(op, row);
    const RowFactors factors(op, tile);
    for (std::int64_t i = 0, n = 0; i < op.n; i += n) {
      n = op.n - i >= 4 ? 4 : op.n - i >= 2 ? 2 : 1;
      const auto multiply = n == 4 ? kernels.four : n == 2 ? kernels.two : kernels.one;
      multiply(layout, tile, op.weight->format, op.x + i * layout.row_bytes,
               Outputs(op, i, n, row, tile.n_rows, factors.rows));
    }
  }
}

// ---- many rows

// The tile's codes as bytes, and its scales and biases as floats.
struct OpenTile {
  OpenTile(const RoundedMatmul& op, const RoundedTile& tile) noexcept
      : factors(op, tile), memory(rounded_scratch(op)) {
    const WeightFormat& format = op.weight->format;
    const RoundedLayout& layout = *op.layout;
    for (std::int64_t g = 0; g < layout.n_weight_groups; ++g) {
      const __m512 scale = load_scales(format.scale_dtype, tile.scales, g);
      _mm512_store_ps(memory.scales + g * kTileRows, scale);
      if (layout.centered != 0) continue;
      _mm512_store_ps(memory.biases + g * kTileRows, load_biases(format, tile, g, scale));
    }
    if (format.kind == WeightKind::Fp4) {
      open<Fp4Unit>(tile.codes, layout.cols);
    } else {
      with_bits(format.bits, [&]<int Bits>() { open<CodeUnit<Bits>>(tile.codes, layout.cols); });
    }
  }
  // Of blocks.
  OpenTile(const RoundedMatmul& op, const BlockTile& tile) noexcept : memory(rounded_scratch(op)) {
    open_blocks(op, tile, memory);
  }
  __m512 scales(std::int64_t g) const noexcept {
    return _mm512_load_ps(memory.scales + g * kTileRows);
  }
  __m512 biases(std::int64_t g) const noexcept {
    return _mm512_load_ps(memory.biases + g * kTileRows);
  }
  const std::byte* codes() const noexcept { return memory.codes; }

  RowFactors factors;

 private:
  template <class Unit>
  void open(const std::byte* from, std::int64_t cols) noexcept {
    std::byte* to = memory.codes;
    for (std::int64_t c = 0; c < cols; c += 4 * Unit::kRegisters) {
      __m512i codes[Unit::kRegisters];
      Unit::load(from, codes);
#pragma GCC unroll 5
      for (int line = 0; line < Unit::kBytes; line += 64)
        _mm_prefetch(at(from, kAhead + line), kAheadHint);
      from += Unit::kBytes;
#pragma GCC unroll 8
      for (int k = 0; k < Unit::kRegisters; ++k, to += 64) _mm512_store_si512(to, codes[k]);
    }
  }

  RoundedScratch memory;
};

template <class Dot, bool Wide, int Digits, int N>
void many_tokens(const RoundedLayout& layout, const OpenTile& tile, const std::byte* x,
                 const Outputs& out) noexcept {
  __m512 acc[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) acc[i] = _mm512_setzero_ps();
  const std::byte* from = tile.codes();
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    __m512i sums[Digits][N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      sums[0][i] = _mm512_setzero_si512();
      if (Digits == 2) sums[Digits - 1][i] = _mm512_setzero_si512();
    }
    for (int c = 0; c < layout.group; c += 4, from += 64) {
      const __m512i codes = _mm512_load_si512(from);
      const std::byte* digits = x + g * layout.group + c;
#pragma GCC unroll 2
      for (int digit = 0; digit < Digits; ++digit) {
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) {
          sums[digit][i] = Dot::template add<Wide>(
              sums[digit][i], codes, digits + digit * layout.low_at + i * layout.row_bytes);
        }
      }
    }
    const __m512 scales = tile.scales(g), biases = tile.biases(g);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      acc[i] = add_group(layout, acc[i], total<Digits>(sums[0][i], sums[Digits - 1][i]), scales,
                         biases, x + i * layout.row_bytes, g);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) out.put(i, acc[i]);
}

using ManyTokens = void (*)(const RoundedLayout& layout, const OpenTile& tile, const std::byte* x,
                            const Outputs& out) noexcept;

// For 1 to kTokens rows of activations.
template <class Dot, bool Wide, int Digits>
constexpr ManyTokens kAffineBySize[kTokens] = {
    many_tokens<Dot, Wide, Digits, 1>, many_tokens<Dot, Wide, Digits, 2>,
    many_tokens<Dot, Wide, Digits, 3>, many_tokens<Dot, Wide, Digits, 4>,
    many_tokens<Dot, Wide, Digits, 5>, many_tokens<Dot, Wide, Digits, 6>,
    many_tokens<Dot, Wide, Digits, 7>, many_tokens<Dot, Wide, Digits, 8>};

// Products of an open tile with rows [begin, end) of the activations.
template <const ManyTokens (&kBySize)[kTokens]>
void multiply_open(const RoundedMatmul& op, const OpenTile& tile, std::int64_t row,
                   std::int64_t n_rows, std::int64_t begin, std::int64_t end) noexcept {
  const std::int64_t n_blocks = (end - begin + kTokens - 1) / kTokens;  // of about equal size
  for (std::int64_t block = 0, i = begin, n = 0; block < n_blocks; ++block, i += n) {
    n = (end - i + n_blocks - block - 1) / (n_blocks - block);
    kBySize[n - 1](*op.layout, tile, op.x + i * op.layout->row_bytes,
                   Outputs(op, i, n, row, n_rows, tile.factors.rows));
  }
}

// Calls multiply, which is what multiplies an open tile, for all of them.
template <class Multiply>
void many_rows(const RoundedMatmul& op, const Multiply& multiply) noexcept {
  const RoundedLayout& layout = *op.layout;
  const std::int64_t fit = kCacheBytes / layout.row_bytes / 16 * 16;
  const std::int64_t step = fit > 16 ? fit : 16;
  const bool in_blocks = op.weight->format.kind == WeightKind::Block;
  const auto multiply_tile = [&](const auto& tile, std::int64_t row, std::int64_t begin,
                                 std::int64_t end) {
    multiply(op, OpenTile(op, tile), row, tile.n_rows, begin, end);
  };
  for (std::int64_t begin = 0; begin < op.n; begin += step) {
    const std::int64_t end = begin + step < op.n ? begin + step : op.n;
    for (std::int64_t row = op.row; row < op.row + op.n_rows; row += kTileRows) {
      in_blocks ? multiply_tile(rounded_block_tile(op, row), row, begin, end)
                : multiply_tile(rounded_tile(op, row), row, begin, end);
    }
  }
}

}  // namespace
}  // namespace moeflux::cpu
