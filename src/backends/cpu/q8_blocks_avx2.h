// The form Blocks for AVX2: products with few rows of activations, whose time is that of reading
// the weights. See q8_avx2.h for who includes this.
//
// A register holds a unit of the codes of one row. The sums of its products lie in 8 lanes; those
// of 8 rows are added across while they are turned, so that a group ends with a register of rows.
#pragma once

#include "backends/cpu/q8_avx2.h"

namespace moeflux::cpu {
namespace {

// A unit is 32 bytes of codes of 2 or 4 bits as they lie in memory ...
template <int Bits, int Digits>
struct NarrowUnit {
  static constexpr int kBytes = kUnit;
  static constexpr int kSteps = 8 / Bits;
  static constexpr int kCodes = kUnit * kSteps;
  struct Weights {
    __m256i step[kSteps];
  };
  struct Activations {
    const std::byte *high, *low;
  };

  static Weights weights(const std::byte* from) noexcept {
    const __m256i packed = load(from), mask = _mm256_set1_epi8((1 << Bits) - 1);
    Weights w;
#pragma GCC unroll 4
    for (int i = 0; i < kSteps; ++i) {
      w.step[i] = _mm256_and_si256(_mm256_srli_epi16(packed, i * Bits), mask);
    }
    return w;
  }
  static Activations activations(const Q8Layout& layout, const std::byte* x,
                                 std::int64_t unit) noexcept {
    x += unit / 2 * (Q8Layout::kBlockBytes * kSteps) + unit % 2 * kUnit;
    return {x, x + layout.low_at};
  }
  // Up to 8 products that are at most 15 * 128 fit into 16 bits.
  static __m256i pairs(const Weights& w, const std::byte* digits) noexcept {
    __m256i sum = _mm256_maddubs_epi16(w.step[0], load(digits));
#pragma GCC unroll 4
    for (int i = 1; i < kSteps; ++i) {
      const __m256i x = load(digits + i * Q8Layout::kBlockBytes);
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w.step[i], x));
    }
    return sum;
  }
  static __m256i lane_sums(const Weights& w, const Activations& x) noexcept {
    const __m256i one = _mm256_set1_epi16(1), base = _mm256_set1_epi16(256);
    if constexpr (Digits == 1) return _mm256_madd_epi16(pairs(w, x.high), one);
    return _mm256_add_epi32(_mm256_madd_epi16(pairs(w, x.high), base),
                            _mm256_madd_epi16(pairs(w, x.low), one));
  }
};

// ... or 32 codes of another width, one per byte.
template <int Bits, int Digits>
struct WideUnit {
  static constexpr int kBytes = 4 * Bits;
  static constexpr int kCodes = kUnit;
  using Weights = WideCodes;
  using Activations = WideCodes;

  static Weights weights(const std::byte* from) noexcept { return wide_codes<Bits>(from); }
  static Activations activations(const Q8Layout& layout, const std::byte* x,
                                 std::int64_t unit) noexcept {
    return wide_activations<Digits>(layout, x + unit * kUnit);
  }
  static __m256i lane_sums(const Weights& w, const Activations& x) noexcept {
    return _mm256_add_epi32(_mm256_madd_epi16(w.even, x.even), _mm256_madd_epi16(w.odd, x.odd));
  }
};

// Lanes at even or at odd places in each half: two of a, then two of b.
__m256i evens(__m256i a, __m256i b) noexcept {
  return _mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
}
__m256i odds(__m256i a, __m256i b) noexcept {
  return _mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xDD));
}

// Adds the products of one unit of each row, which is `Groups` groups or a part of one. Lanes of a
// row are added pair by pair while rows take their places, as long as they belong to one group.
template <class Unit, int Groups, int N>
void add_unit(const std::byte* const (&rows)[kRows], std::int64_t at,
              const typename Unit::Activations (&x)[N], __m256i (&sums)[N][Groups]) noexcept {
  constexpr int kParts = Groups == 4 ? 2 : 1;  // of a half of a register
  __m256i half_rows[2][N][kParts];
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    typename Unit::Weights w[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) w[r] = Unit::weights(rows[4 * h + r] + at);
#pragma GCC unroll 3
    for (int i = 0; i < N; ++i) {
      const __m256i a = Unit::lane_sums(w[0], x[i]), b = Unit::lane_sums(w[1], x[i]);
      const __m256i ab = _mm256_add_epi32(evens(a, b), odds(a, b));
      const __m256i c = Unit::lane_sums(w[2], x[i]), d = Unit::lane_sums(w[3], x[i]);
      const __m256i cd = _mm256_add_epi32(evens(c, d), odds(c, d));
      if constexpr (kParts == 2) {
        half_rows[h][i][0] = evens(ab, cd);
        half_rows[h][i][1] = odds(ab, cd);
      } else {
        half_rows[h][i][0] = _mm256_add_epi32(evens(ab, cd), odds(ab, cd));
      }
    }
  }
#pragma GCC unroll 3
  for (int i = 0; i < N; ++i) {
#pragma GCC unroll 2
    for (int p = 0; p < kParts; ++p) {
      const __m256i a = half_rows[0][i][p], b = half_rows[1][i][p];
      const __m256i first = _mm256_permute2x128_si256(a, b, 0x20);
      const __m256i last = _mm256_permute2x128_si256(a, b, 0x31);
      if constexpr (Groups == 1) {
        sums[i][0] = _mm256_add_epi32(sums[i][0], _mm256_add_epi32(first, last));
      } else {
        sums[i][p] = first;
        sums[i][p + kParts] = last;
      }
    }
  }
}

template <class Unit, int Groups, int N>
void block_rows(const Q8Layout& layout, const Panel& panel, const std::byte* x,
                float (*y)[kRows]) noexcept {
  // Where a unit holds several groups, a row may end within one: zeros follow.
  std::byte tails[kRows][kUnit];
  const std::byte* tail_rows[kRows];
  const std::int64_t n_whole = layout.cols / Unit::kCodes;
  const std::int64_t tail_bytes = layout.cols % Unit::kCodes * Unit::kBytes / Unit::kCodes;
  for (int r = 0; Groups > 1 && r < kRows; ++r) {
    std::memset(tails[r], 0, kUnit);
    std::memcpy(tails[r], panel.data[r] + n_whole * Unit::kBytes,
                static_cast<std::size_t>(tail_bytes));
    tail_rows[r] = tails[r];
  }
  const std::int64_t span =
      Groups > 1 ? 1 : layout.group / Unit::kCodes;  // units of a group, a power of 2
  __m256 acc[N];
#pragma GCC unroll 3
  for (int i = 0; i < N; ++i) acc[i] = _mm256_setzero_ps();
  __m256i sums[N][Groups] = {};
  for (std::int64_t g = 0, unit = 0; g < layout.n_groups; ++unit) {
    typename Unit::Activations codes[N];
#pragma GCC unroll 3
    for (int i = 0; i < N; ++i) {
      codes[i] = Unit::activations(layout, x + i * layout.row_bytes, unit);
    }
    prefetch(panel.data[0] + unit * (kRows * Unit::kBytes) + kAhead, kRows * Unit::kBytes);
    const bool whole = Groups == 1 || unit < n_whole;
    add_unit<Unit, Groups, N>(whole ? panel.data : tail_rows, whole ? unit * Unit::kBytes : 0,
                              codes, sums);
    if (Groups == 1 && ((unit + 1) & (span - 1)) != 0) continue;
#pragma GCC unroll 4
    for (int k = 0; k < Groups; ++k) {
      if (Groups > 1 && g == layout.n_groups) break;
#pragma GCC unroll 3
      for (int i = 0; i < N; ++i) {
        acc[i] = add_group(layout, panel, x + i * layout.row_bytes, g, sums[i][k], acc[i]);
        sums[i][k] = _mm256_setzero_si256();
      }
      ++g;
    }
  }
#pragma GCC unroll 3
  for (int i = 0; i < N; ++i) _mm256_storeu_ps(y[i], acc[i]);
}

template <class Unit, int Groups>
Kernel block_kernel(std::int64_t n) noexcept {
  return n == 1   ? block_rows<Unit, Groups, 1>
         : n == 2 ? block_rows<Unit, Groups, 2>
                  : block_rows<Unit, Groups, 3>;
}

template <int Digits>
Kernel block_kernel(int bits, int group, std::int64_t n) noexcept {
  switch (bits) {
    case 2:
      return group == 32   ? block_kernel<NarrowUnit<2, Digits>, 4>(n)
             : group == 64 ? block_kernel<NarrowUnit<2, Digits>, 2>(n)
                           : block_kernel<NarrowUnit<2, Digits>, 1>(n);
    case 3:
      return block_kernel<WideUnit<3, Digits>, 1>(n);
    case 4:
      return group == 32 ? block_kernel<NarrowUnit<4, Digits>, 2>(n)
                         : block_kernel<NarrowUnit<4, Digits>, 1>(n);
    case 5:
      return block_kernel<WideUnit<5, Digits>, 1>(n);
    case 6:
      return block_kernel<WideUnit<6, Digits>, 1>(n);
    default:
      return block_kernel<WideUnit<8, Digits>, 1>(n);
  }
}

}  // namespace
}  // namespace moeflux::cpu
