// Products with tiles of blocks (quant/block_tile.h) for AVX2: codes of 8 rows as bytes, a span of
// 32 codes at a time, which may be two groups. Included only by the file of the fast path;
// everything here has internal linkage.
#pragma once

#include "backends/cpu/block_scales.h"
#include "backends/cpu/rounded_avx2.h"

namespace moeflux::cpu {
namespace {

// The codes of a span. kRun: how many sums of two products fit into 16 bits when added; none where
// not even one does.
template <int Low, int High>
struct SpanCodes {
  static constexpr int kLines = Low + High;
  static constexpr int kLargest = (1 << kLines) - 1;
  static constexpr int kRun = kLargest <= 15 ? 8 : kLargest == 31 ? 4 : kLargest == 63 ? 2 : 0;
  static constexpr bool kOpens = High > 0;  // others take a shift and a mask

  // The k-th four of each row.
  static __m256i four(const std::byte* span, int k) noexcept {
    if constexpr (Low == 8) {
      return load(span + k * kLine);
    } else {
      constexpr int kPerDword = 8 / Low;  // fours
      constexpr int kUnits = High == 2 ? 2 : 1;
      constexpr int kUnitFours = kFours / kUnits, kUnitLines = kLines / kUnits;
      const std::byte* unit = span + k / kUnitFours * kUnitLines * kLine;
      const int in_unit = k % kUnitFours;
      const __m256i lower =
          field<Low>(load(unit + in_unit / kPerDword * kLine), in_unit % kPerDword * Low, 0);
      if constexpr (High == 0) return lower;
      return _mm256_or_si256(
          lower, field<High>(load(unit + (kUnitLines - 1) * kLine), in_unit * High, Low));
    }
  }

 private:
  // Bits of every byte, moved within it.
  template <int Bits>
  static __m256i field(__m256i line, int from, int to) noexcept {
    const __m256i moved =
        from >= to ? _mm256_srli_epi16(line, from - to) : _mm256_slli_epi16(line, to - from);
    return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(((1 << Bits) - 1) << to)));
  }
};

// Codes of 4 bits that choose from 16 bytes.
template <CodeTable Table>
struct SpanChosen {
  static constexpr int kLines = 4;
  static constexpr int kRun = Table == CodeTable::E2m1 ? 4 : 0;
  static constexpr bool kOpens = true;

  static __m256i four(const std::byte* span, int k) noexcept {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table()),
                               SpanCodes<4, 0>::four(span, k));
  }

 private:
  static __m128i table() noexcept {
    if constexpr (Table == CodeTable::E2m1)
      return _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    // 128 added to each.
    return _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103, -90, -75, -59, -39,
                         -15);
  }
};

// Bytes in scratch, up to 126 or as large as others.
template <int Run>
struct SpanOpened {
  static constexpr int kLines = kFours;
  static constexpr int kRun = Run;

  static __m256i four(const std::byte* span, int k) noexcept { return load(span + k * kLine); }
};

struct HalvesAvx2 {
  static void to_floats(const std::byte* from, float* to) noexcept {
    for (int i = 0; i < 16; i += 8) {
      __m128i halves;
      std::memcpy(&halves, from + 2 * i, sizeof halves);
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
    }
  }
};

// The activations of a group, as they are.
template <class Codes, int Digits, int N>
class BlockGroup {
 public:
  BlockGroup(const RoundedLayout& layout, const std::byte* x) noexcept : layout_(layout), x_(x) {}

  // Adds the products of fours [First, First + Count) of the span that begins at code c.
  template <int First, int Count, int Halves>
  void add(const std::byte* span, int c, __m256i (&sums)[Halves][N]) const noexcept {
    constexpr int kRun = Codes::kRun < Count ? Codes::kRun : Count;
#pragma GCC unroll 8
    for (int k = First; k < First + Count; k += kRun) add_run<kRun>(span, x_ + c, k, sums);
  }

 private:
  // As many as fit into 16 bits.
  template <int Run, int Halves>
  void add_run(const std::byte* span, const std::byte* x, int first,
               __m256i (&sums)[Halves][N]) const noexcept {
    __m256i run[Digits][Halves][N] = {};
#pragma GCC unroll 8
    for (int k = first; k < first + Run; ++k) {
#pragma GCC unroll 2
      for (int h = 0; h < Halves; ++h) {
        const __m256i codes = Codes::four(span + h * kHalf, k);
        // One sum after the other: any other order needs more registers than there are.
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) {
#pragma GCC unroll 2
          for (int d = 0; d < Digits; ++d) {
            const std::byte* four = x + 4 * k + d * layout_.low_at + i * layout_.row_bytes;
            const __m256i pairs = _mm256_maddubs_epi16(codes, in_all_lanes(four));
            run[d][h][i] = k == first ? pairs : _mm256_add_epi16(run[d][h][i], pairs);
            asm volatile("" : "+x"(run[d][h][i]));
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int k = 0; k < Digits * Halves * N; ++k) {
      const int d = k / (Halves * N), h = k / N % Halves, i = k % N;
      const short worth = d == Digits - 1 ? 1 : 256;
      const __m256i fours = _mm256_madd_epi16(run[d][h][i], _mm256_set1_epi16(worth));
      sums[h][i] = _mm256_add_epi32(sums[h][i], fours);
    }
  }

  const RoundedLayout& layout_;
  const std::byte* x_;
};

// As 16-bit numbers, whatever the digits: for codes of which not two products fit into 16 bits.
template <class Codes, int Digits, int N>
requires(Codes::kRun == 0) class BlockGroup<Codes, Digits, N> {
 public:
  BlockGroup(const RoundedLayout& layout, const std::byte* x) noexcept {
    for (int i = 0; i < N; ++i, x += layout.row_bytes) {
      for (int c = 0; c < kColumns; c += kPiece) {
        const __m256i last = load(x + (Digits == 2 ? layout.low_at : 0) + c);
        __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(last, 8), 8);
        __m256i odd = _mm256_srai_epi16(last, 8);
        if constexpr (Digits == 2) {
          const __m256i high = load(x + c);
          even = _mm256_add_epi16(even, _mm256_slli_epi16(high, 8));
          odd = _mm256_add_epi16(odd, _mm256_and_si256(high, _mm256_set1_epi16(-256)));
        }
        store(x_[i] + 2 * c, even);
        store(x_[i] + 2 * c + kHalf, odd);
      }
    }
  }

  template <int First, int Count, int Halves>
  void add(const std::byte* span, int c, __m256i (&sums)[Halves][N]) const noexcept {
#pragma GCC unroll 2
    for (int k = First; k < First + Count; ++k) {
#pragma GCC unroll 2
      for (int h = 0; h < Halves; ++h) {
        const __m256i codes = Codes::four(span + h * kHalf, k);
        const __m256i even = _mm256_and_si256(codes, _mm256_set1_epi16(0xFF));
        const __m256i odd = _mm256_srli_epi16(codes, 8);
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) {
          const __m256i evens = in_all_lanes(x_[i] + 2 * c + 4 * k);
          const __m256i odds = in_all_lanes(x_[i] + 2 * c + kHalf + 4 * k);
          sums[h][i] = _mm256_add_epi32(sums[h][i], _mm256_madd_epi16(even, evens));
          sums[h][i] = _mm256_add_epi32(sums[h][i], _mm256_madd_epi16(odd, odds));
        }
      }
    }
  }

 private:
  static constexpr int kColumns = 64;  // of a group of activations
  // For every piece, numbers at even and then those at odd places.
  alignas(kHalf) std::byte x_[N][2 * kColumns];
};

// A group of the weight: what it adds to `parts`.
template <class Codes, int Group, bool Biased, int Digits, int N, int First, int Halves>
void add_block_group(const RoundedLayout& layout, const BlockGroup<Codes, Digits, N>& group,
                     const RoundedTile& tile, const std::byte* x, const std::byte* span, int c,
                     std::int64_t g, int half, __m256 (&parts)[Halves][N]) noexcept {
  const std::byte* sums_at = x + layout.sums_at + g * 4;
  __m256i sums[Halves][N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    const __m256i start =
        Biased ? _mm256_setzero_si256() : in_all_lanes(sums_at + i * layout.row_bytes);
#pragma GCC unroll 2
    for (int h = 0; h < Halves; ++h) sums[h][i] = start;
  }
  group.template add<First, Group / 4>(span + half * kHalf, c, sums);
#pragma GCC unroll 2
  for (int h = 0; h < Halves; ++h) {
    const __m256 scale = load_scales(DType::F32, tile.scales, g, half + h);
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i)
      parts[h][i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[h][i]), scale, parts[h][i]);
    if constexpr (Biased) {
      const __m256 bias = load_scales(DType::F32, tile.biases, g, half + h);
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        const __m256 sum = _mm256_castsi256_ps(in_all_lanes(sums_at + i * layout.row_bytes));
        parts[h][i] = _mm256_fmadd_ps(bias, sum, parts[h][i]);
      }
    }
  }
}

template <class Codes, int Group, bool Biased, int Digits, int N>
void multiply_blocks(const RoundedLayout& layout, const RoundedTile& tile, const WeightFormat&,
                     const std::byte* x, float (*y)[kTileRows]) noexcept {
  constexpr int kHalves = N == 1 ? 2 : 1;  // at once: as many as there are registers for
  __m256 acc[2][N];
#pragma GCC unroll 8
  for (int k = 0; k < 2 * N; ++k) acc[k / N][k % N] = _mm256_setzero_ps();
  const std::byte* first = tile.codes;
  for (std::int64_t group = 0; group < layout.n_groups; ++group) {
    const BlockGroup<Codes, Digits, N> activations(layout, x + group * layout.group);
    const std::int64_t left = layout.cols - group * layout.group;
    const int cols = left < layout.group ? static_cast<int>(left) : layout.group;
    const std::byte* span = first;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half += kHalves) {
      __m256 parts[kHalves][N];
#pragma GCC unroll 4
      for (int k = 0; k < kHalves * N; ++k) parts[k / N][k % N] = _mm256_setzero_ps();
      span = first;
      for (int c = 0; c < cols; c += kPiece, span += Codes::kLines * kLine) {
        const std::int64_t g = (group * layout.group + c) / Group;
        add_block_group<Codes, Group, Biased, Digits, N, 0>(layout, activations, tile, x, span, c,
                                                            g, half, parts);
        if constexpr (Group == 16) {
          add_block_group<Codes, Group, Biased, Digits, N, 4>(layout, activations, tile, x, span, c,
                                                              g + 1, half, parts);
        }
        if (half == 0) prefetch<Codes::kLines * kLine>(span);
      }
#pragma GCC unroll 8
      for (int k = 0; k < kHalves * N; ++k) {
        const std::byte* scale = x + k % N * layout.row_bytes + layout.scales_at + group * 4;
        __m256& sum = acc[half + k / N][k % N];
        sum = _mm256_fmadd_ps(parts[k / N][k % N], _mm256_castsi256_ps(in_all_lanes(scale)), sum);
      }
    }
    first = span;
  }
#pragma GCC unroll 8
  for (int k = 0; k < 2 * N; ++k) _mm256_storeu_ps(y[k % N] + k / N * 8, acc[k / N][k % N]);
}

}  // namespace
}  // namespace moeflux::cpu
