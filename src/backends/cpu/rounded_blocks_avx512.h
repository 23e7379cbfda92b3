// Products with tiles of blocks for AVX-512: as rounded_centered_avx512.h, but that all have their
// scales as floats in scratch, and that codes come a span of 32 at a time, which may be two groups.
#pragma once

#include "backends/cpu/rounded_centered_avx512.h"

namespace moeflux::cpu {
namespace {

// Codes that were opened.
struct SpanOpened {
  static constexpr int kLines = 8;
  static void load(const std::byte* from, __m512i (&out)[kSpanFours]) noexcept {
    SpanCodes<8, 0>::load(from, out);
  }
};

// The scales of a group, from a tile or from scratch.
struct ScalesOpened {
  static constexpr std::int64_t kBytes = 64;
  static __m512 load(const std::byte* from) noexcept { return _mm512_load_ps(from); }
};
struct ScalesInHalves {
  static constexpr std::int64_t kBytes = 32;
  static __m512 load(const std::byte* from) noexcept {
    __m256i halves;
    std::memcpy(&halves, from, sizeof halves);
    return _mm512_cvtph_ps(halves);
  }
};
// As BlockScales has them.
struct ScalesInPowers {
  static constexpr std::int64_t kBytes = 16;
  static __m512 load(const std::byte* from) noexcept {
    const __m512i exponents = _mm512_cvtepu8_epi32(load_16(from)), one = _mm512_set1_epi32(1);
    return _mm512_castsi512_ps(
        _mm512_max_epi32(_mm512_slli_epi32(_mm512_sub_epi32(exponents, one), 23),
                         _mm512_slli_epi32(_mm512_add_epi32(exponents, one), 21)));
  }
};

struct FewBlocks {
  const std::byte *codes, *scales;
  const float* biases;
};

template <class Dot, class Codes, class Scales, bool Wide, int Group, bool Biased, int Digits,
          int N>
void few_blocks(const RoundedLayout& layout, const FewBlocks& tile, const std::byte* x,
                const Outputs& out) noexcept {
  constexpr bool kWide = Wide && Dot::kTellsWide;
  constexpr int kFours = Group / 4;
  constexpr int kChains =
      N * Digits == 1 && Group == 32 ? 2 : 1;  // that do not wait for each other
  __m512 acc[N], part[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) acc[i] = part[i] = _mm512_setzero_ps();
  const std::byte* from = tile.codes;
  const std::byte* scales = tile.scales;
  const float* biases = tile.biases;
  std::int64_t sums_at = layout.sums_at;
  for (std::int64_t c = 0; c < layout.cols; c += kSpan, from += Codes::kLines * 64) {
    __m512i codes[kSpanFours];
    Codes::load(from, codes);
#pragma GCC unroll 8
    for (int line = 0; line < Codes::kLines; ++line)
      _mm_prefetch(at(from, kAhead + line * 64), kAheadHint);
#pragma GCC unroll 2
    for (int group = 0; group < kSpan / Group; ++group) {
      __m512i sums[kChains][Digits][N];
#pragma GCC unroll 8
      for (int k = 0; k < N * Digits * kChains; ++k)
        sums[k / N / Digits][k / N % Digits][k % N] = _mm512_setzero_si512();
      if constexpr (!Biased) {
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) {
          std::int32_t start;
          std::memcpy(&start, x + i * layout.row_bytes + sums_at, sizeof start);
          sums[0][Digits - 1][i] = _mm512_set1_epi32(start);
        }
      }
#pragma GCC unroll 8
      for (int k = 0; k < kFours; ++k) {
#pragma GCC unroll 2
        for (int digit = 0; digit < Digits; ++digit) {
#pragma GCC unroll 4
          for (int i = 0; i < N; ++i) {
            sums[k % kChains][digit][i] = Dot::template add<kWide>(
                sums[k % kChains][digit][i], codes[group * kFours + k],
                x + digit * layout.low_at + i * layout.row_bytes + c + group * Group + 4 * k);
          }
        }
      }
      const __m512 scale = Scales::load(scales);
      scales += Scales::kBytes;
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        __m512i sum = total<Digits>(sums[0][0][i], sums[0][Digits - 1][i]);
        if (kChains == 2) sum = _mm512_add_epi32(sum, sums[kChains - 1][0][i]);
        part[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, part[i]);
      }
      if constexpr (Biased) {
        const __m512 bias = _mm512_load_ps(biases);
        biases += kTileRows;
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) {
          float sum;
          std::memcpy(&sum, x + i * layout.row_bytes + sums_at, sizeof sum);
          part[i] = _mm512_fmadd_ps(bias, _mm512_set1_ps(sum), part[i]);
        }
      }
      sums_at += 4;
    }
    if (c / kSpan % 2 == 0 && c + kSpan < layout.cols) continue;  // half a group of activations
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      acc[i] = add_part(layout, acc[i], part[i], x + i * layout.row_bytes, c / (2 * kSpan));
      part[i] = _mm512_setzero_ps();
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) out.put(i, acc[i]);
}

template <class Dot, class Codes, class Scales, bool Wide, int Group, bool Biased, int Digits>
void few_block_tile(const RoundedMatmul& op, const FewBlocks& tile, std::int64_t row,
                    std::int64_t n_rows) noexcept {
  constexpr auto kOne = few_blocks<Dot, Codes, Scales, Wide, Group, Biased, Digits, 1>;
  constexpr auto kTwo = few_blocks<Dot, Codes, Scales, Wide, Group, Biased, Digits, 2>;
  constexpr auto kFour = few_blocks<Dot, Codes, Scales, Wide, Group, Biased, Digits, 4>;
  for (std::int64_t i = 0, n = 0; i < op.n; i += n) {
    n = op.n - i >= 4 ? 4 : op.n - i >= 2 ? 2 : 1;
    const auto multiply = n == 4 ? kFour : n == 2 ? kTwo : kOne;
    multiply(*op.layout, tile, op.x + i * op.layout->row_bytes,
             Outputs(op, i, n, row, n_rows, nullptr));
  }
}

template <class Dot, class Kind, int Digits>
void few_block_rows(const RoundedMatmul& op) noexcept {
  using Scales = std::conditional_t<
      Kind::kScale == ScaleKind::Half, ScalesInHalves,
      std::conditional_t<Kind::kScale == ScaleKind::Power, ScalesInPowers, ScalesOpened>>;
  const RoundedScratch memory = rounded_scratch(op);
  for (std::int64_t row = op.row; row < op.row + op.n_rows; row += kTileRows) {
    const BlockTile tile = rounded_block_tile(op, row);
    prefetch_codes(tile);
    const std::byte* scales = Kind::kScale == ScaleKind::Half ? tile.halves : tile.bytes;
    if constexpr (Kind::kScale == ScaleKind::Packed) {
      open_scales(op, tile, memory);
      scales = static_cast<const std::byte*>(static_cast<const void*>(memory.scales));
    }
    few_block_tile<Dot, CodesOf<Kind>, Scales, Kind::kWide, Kind::kGroup, Kind::kBiased, Digits>(
        op, {tile.codes, scales, memory.biases}, row, tile.n_rows);
  }
}

template <class Dot, int Group, int Digits>
void few_whole_block_rows(const RoundedMatmul& op) noexcept {
  const RoundedScratch memory = rounded_scratch(op);
  const auto* scales = static_cast<const std::byte*>(static_cast<const void*>(memory.scales));
  for (std::int64_t row = op.row; row < op.row + op.n_rows; row += kTileRows) {
    const BlockTile tile = rounded_block_tile(op, row);
    open_whole_blocks(op.weight->format.blocks, tile, op.layout->cols, memory);
    few_block_tile<Dot, SpanOpened, ScalesOpened, false, Group, false, Digits>(
        op, {memory.codes, scales, nullptr}, row, tile.n_rows);
  }
}

template <class Dot, int Digits, bool Wide, int Group, bool Biased>
void many_block_rows(const RoundedMatmul& op) noexcept {
  many_rows(op,
            multiply_open<kCenteredBySize<Dot, Digits, Group, Wide && Dot::kTellsWide, Biased>>);
}

template <class Dot, int Digits>
void block_products(const RoundedMatmul& op) noexcept {
  const BlockType type = op.weight->format.blocks;
  const bool few = op.n <= kFew;
  if (block_tiling(type).has_planes) {
    with_block_kind(type, [&]<class Kind>() {
      few ? few_block_rows<Dot, Kind, Digits>(op)
          : many_block_rows<Dot, Digits, Kind::kWide, Kind::kGroup, Kind::kBiased>(op);
    });
  } else if (op.layout->weight_group == 16) {
    few ? few_whole_block_rows<Dot, 16, Digits>(op)
        : many_block_rows<Dot, Digits, false, 16, false>(op);
  } else {
    few ? few_whole_block_rows<Dot, 32, Digits>(op)
        : many_block_rows<Dot, Digits, false, 32, false>(op);
  }
}

template <class Dot>
void block_products(const RoundedMatmul& op) noexcept {
  op.layout->digits == 1 ? block_products<Dot, 1>(op) : block_products<Dot, 2>(op);
}

}  // namespace
}  // namespace moeflux::cpu
