// Products with few rows of activations (Q8Form::Blocks). Weights stream through once; 64 bytes of
// each of 16 rows become 16 registers of sums over 4 bytes, which a tree of shuffles and additions
// turns into one register per group, with a lane for each row.
#pragma once

#include "backends/cpu/q8_avx512.h"

namespace moeflux::cpu {
namespace {

// What a block means for a format.
template <int Bits, int Group>
struct BlockShape {
  static constexpr int kSteps = 8 / Bits;                         // codes in a byte
  static constexpr int kCodes = kBlock * kSteps;                  // in a block
  static constexpr int kGroups = kCodes / Group;                  // in a block; 0: less than one
  static constexpr int kSpan = kGroups > 0 ? 1 : Group / kCodes;  // blocks that are summed first
  static constexpr int kLanes = kGroups > 0 ? 16 / kGroups : 16;  // that belong to one group
  static constexpr int kOut = kGroups > 0 ? kGroups : 1;          // groups that come out
};

template <int Bits>
__m512i codes_of(__m512i packed, int step) noexcept {
  if constexpr (Bits == 8) {
    return packed;
  } else {
    const __m512i mask = _mm512_set1_epi8((1 << Bits) - 1);
    if (step == 0) return _mm512_and_si512(packed, mask);
    return _mm512_and_si512(_mm512_srli_epi16(packed, static_cast<unsigned>(step * Bits)), mask);
  }
}

// Sums within each quarter: of all its four dwords, or of two and two. Lane k of a quarter is row
// k.
template <int Lanes>
void sum_quarters(const __m512i (&v)[4], __m512i* out) noexcept {
  const __m512i ab_low = _mm512_unpacklo_epi32(v[0], v[1]);
  const __m512i ab_high = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i cd_low = _mm512_unpacklo_epi32(v[2], v[3]);
  const __m512i cd_high = _mm512_unpackhi_epi32(v[2], v[3]);
  if constexpr (Lanes == 2) {
    out[0] = _mm512_add_epi32(_mm512_unpacklo_epi64(ab_low, cd_low),
                              _mm512_unpackhi_epi64(ab_low, cd_low));
    out[1] = _mm512_add_epi32(_mm512_unpacklo_epi64(ab_high, cd_high),
                              _mm512_unpackhi_epi64(ab_high, cd_high));
  } else {
    const __m512i ab = _mm512_add_epi32(ab_low, ab_high);
    const __m512i cd = _mm512_add_epi32(cd_low, cd_high);
    out[0] = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  }
}

// From quarters of four rows each to a register of 16 rows per group.
template <int Lanes>
void sum_across(const __m512i (&fours)[4], __m512i* out) noexcept {
  if constexpr (Lanes <= 4) {
    __m512i columns[4];
    transpose_quarters(fours, columns);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) out[k] = columns[k];
  } else {
    const __m512i ab = _mm512_add_epi32(_mm512_shuffle_i32x4(fours[0], fours[1], 0x88),
                                        _mm512_shuffle_i32x4(fours[0], fours[1], 0xDD));
    const __m512i cd = _mm512_add_epi32(_mm512_shuffle_i32x4(fours[2], fours[3], 0x88),
                                        _mm512_shuffle_i32x4(fours[2], fours[3], 0xDD));
    const __m512i first = _mm512_shuffle_i32x4(ab, cd, 0x88);
    const __m512i second = _mm512_shuffle_i32x4(ab, cd, 0xDD);
    if constexpr (Lanes == 8) {
      out[0] = first;
      out[1] = second;
    } else {
      out[0] = _mm512_add_epi32(first, second);
    }
  }
}

// The sums of 16 rows with one block (or kSpan blocks) of N rows of activations.
template <class Dot, int Bits, int Group, int Digits, int N, bool Whole>
void block_sums(const Q8Layout& layout, const RowSet& rows, const std::byte* x, std::int64_t b,
                __mmask64 bytes, __m512i (&out)[N][BlockShape<Bits, Group>::kOut]) noexcept {
  using Shape = BlockShape<Bits, Group>;
  constexpr int kSteps = Shape::kSteps, kSpan = Shape::kSpan, kLanes = Shape::kLanes;
  constexpr int kHalves = kLanes == 2 ? 2 : 1;
  __m512i fours[N][kHalves][4];
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    __m512i sums[N][4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const std::byte* row = rows.data[4 * q + r];
      __m512i codes[kSpan][kSteps];
#pragma GCC unroll 2
      for (int s = 0; s < kSpan; ++s) {
        _mm_prefetch(at(rows.ahead, ((b + s) * kRows + 4 * q + r) * kBlock), _MM_HINT_T1);
        const __m512i packed = Whole ? _mm512_loadu_si512(row + (b + s) * kBlock)
                                     : _mm512_maskz_loadu_epi8(bytes, row + (b + s) * kBlock);
#pragma GCC unroll 4
        for (int step = 0; step < kSteps; ++step) codes[s][step] = codes_of<Bits>(packed, step);
      }
#pragma GCC unroll 3
      for (int i = 0; i < N; ++i) {
        const std::byte* xi = x + i * layout.row_bytes + b * (kBlock * kSteps);
        __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 2
        for (int digit = 0; digit < Digits; ++digit) {
          if (digit == 1) sum = _mm512_slli_epi32(sum, 8);
          const std::byte* digits = digit == 0 ? xi : xi + layout.low_at;
#pragma GCC unroll 2
          for (int s = 0; s < kSpan; ++s) {
#pragma GCC unroll 4
            for (int step = 0; step < kSteps; ++step) {
              sum = Dot::template add<Bits == 8>(
                  sum, codes[s][step], _mm512_load_si512(at(digits, (s * kSteps + step) * kBlock)));
            }
          }
        }
        sums[i][r] = sum;
      }
    }
#pragma GCC unroll 3
    for (int i = 0; i < N; ++i) {
      __m512i halves[kHalves];
      sum_quarters<kLanes>(sums[i], halves);
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) fours[i][h][q] = halves[h];
    }
  }
#pragma GCC unroll 3
  for (int i = 0; i < N; ++i) {
    if constexpr (kHalves == 1) {
      sum_across<kLanes>(fours[i][0], out[i]);
    } else {  // each quarter has an even and an odd group
      __m512i groups[2][4];
      sum_across<4>(fours[i][0], groups[0]);
      sum_across<4>(fours[i][1], groups[1]);
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) out[i][k] = groups[k % 2][k / 2];
    }
  }
}

template <class Dot, int Bits, int Group, int Digits, int N>
void block_rows(const Q8Layout& layout, const RowSet& rows, const Scratch& weights,
                const std::byte* x, float* const* y, __mmask16 valid) noexcept {
  using Shape = BlockShape<Bits, Group>;
  __m512 acc[N];
#pragma GCC unroll 3
  for (int i = 0; i < N; ++i) acc[i] = _mm512_setzero_ps();
  const auto add = [&](const auto& sums, std::int64_t first, std::int64_t n_groups)
      __attribute__((always_inline)) {
#pragma GCC unroll 3
    for (int i = 0; i < N; ++i) {
      const std::byte* xi = x + i * layout.row_bytes;
      const auto* x_scales = static_cast<const float*>(at(xi, layout.scales_at)) + first;
      const auto* x_sums = static_cast<const float*>(at(xi, layout.sums_at)) + first;
#pragma GCC unroll 8
      for (int k = 0; k < Shape::kOut; ++k) {
        if (k < n_groups) {
          acc[i] = add_group(acc[i], sums[i][k], weights, first + k, x_scales[k], x_sums[k]);
        }
      }
    }
  };
  __m512i sums[N][Shape::kOut];
  const std::int64_t row_bytes = layout.cols / Shape::kSteps;
  const std::int64_t n_whole = row_bytes / (kBlock * Shape::kSpan) * Shape::kSpan;
  std::int64_t g = 0;
  for (std::int64_t b = 0; b < n_whole; b += Shape::kSpan, g += Shape::kOut) {
    block_sums<Dot, Bits, Group, Digits, N, true>(layout, rows, x, b, 0, sums);
    add(sums, g, Shape::kOut);
  }
  if (g < layout.n_groups) {
    block_sums<Dot, Bits, Group, Digits, N, false>(layout, rows, x, n_whole,
                                                   first_bytes(row_bytes - n_whole * kBlock), sums);
    add(sums, g, layout.n_groups - g);
  }
#pragma GCC unroll 3
  for (int i = 0; i < N; ++i) _mm512_mask_storeu_ps(y[i], valid, acc[i]);
}

template <class Dot, int Bits, int Group, int Digits>
void block_tokens(const Q8Matmul& op, const RowSet& rows, const Scratch& weights, std::int64_t row,
                  __mmask16 valid) noexcept {
  const Q8Layout& layout = *op.layout;
  constexpr int kMost = Q8Layout::kBlockTokens;
  std::int64_t n_parts = (op.n + kMost - 1) / kMost;  // of about equal size
  for (std::int64_t i = 0, n = 0; i < op.n; i += n, --n_parts) {
    float* y[kMost];
    n = (op.n - i + n_parts - 1) / n_parts;
    for (std::int64_t k = 0; k < n; ++k) y[k] = row_of_y(op, i + k, row);
    const std::byte* x = op.x + i * layout.row_bytes;
    if (n == 1) {
      block_rows<Dot, Bits, Group, Digits, 1>(layout, rows, weights, x, y, valid);
    } else if (n == 2) {
      block_rows<Dot, Bits, Group, Digits, 2>(layout, rows, weights, x, y, valid);
    } else {
      block_rows<Dot, Bits, Group, Digits, 3>(layout, rows, weights, x, y, valid);
    }
  }
}

// Asks for what the first rows of a call need.
void prefetch_first(const WeightView& w, std::int64_t row, std::int64_t row_bytes,
                    std::int64_t n_groups) noexcept {
  const std::int64_t plane_bytes = n_groups * (w.format.scale_dtype == DType::F32 ? 4 : 2);
  for (std::int64_t offset = 0; offset < kPlaneAhead; offset += 64) {
    _mm_prefetch(at(w.scales, row * plane_bytes + offset), _MM_HINT_T0);
    _mm_prefetch(at(w.biases, row * plane_bytes + offset), _MM_HINT_T0);
  }
  const RowSet first(w.data, row, 1, row_bytes);
  for (const std::byte* line = first.data[0]; line < first.ahead; line += 64) {
    _mm_prefetch(line, _MM_HINT_T1);
  }
}

template <class Dot, int Bits, int Group>
void block_group(const Q8Matmul& op) noexcept {
  const Q8Layout& layout = *op.layout;
  const WeightView& w = *op.weight;
  const Scratch scratch(op);
  const std::int64_t row_bytes = layout.cols * w.format.bits / 8;
  const std::int64_t last = op.row + op.n_rows;
  prefetch_first(w, op.row, row_bytes, layout.n_groups);
  for (std::int64_t row = op.row; row < last; row += kRows) {
    const std::int64_t n_rows = last - row < kRows ? last - row : kRows;
    load_planes(w, row, n_rows, layout.n_groups, scratch);
    RowSet rows(w.data, row, n_rows, row_bytes);
    if (w.format.bits != Bits) {  // 3, 5 or 6 bits
      with_bits(w.format.bits, [&]<int Stored>() {
        for (int r = 0; r < kRows; ++r) {
          std::byte* codes = scratch.codes + r * layout.padded;
          for (std::int64_t c = 0; c < layout.cols; c += 64) {
            const std::byte* from = rows.data[r] + c * Stored / 8;
            _mm_prefetch(at(from, kAhead), _MM_HINT_T1);
            _mm512_store_si512(at(codes, c),
                               spread<Stored>(from, bytes_of_64<Stored>(layout.cols - c)));
          }
          rows.data[r] = codes;
        }
      });
    }
    if (layout.digits == 1) {
      block_tokens<Dot, Bits, Group, 1>(op, rows, scratch, row, first_lanes(n_rows));
    } else {
      block_tokens<Dot, Bits, Group, 2>(op, rows, scratch, row, first_lanes(n_rows));
    }
  }
}

template <class Dot, int Bits>
void block_bits(const Q8Matmul& op) noexcept {
  if (op.layout->group == 32) return block_group<Dot, Bits, 32>(op);
  if (op.layout->group == 64) return block_group<Dot, Bits, 64>(op);
  return block_group<Dot, Bits, 128>(op);
}

template <class Dot>
void matmul_blocks(const Q8Matmul& op) noexcept {
  if (op.layout->bits == 2) return block_bits<Dot, 2>(op);
  if (op.layout->bits == 4) return block_bits<Dot, 4>(op);
  return block_bits<Dot, 8>(op);
}

}  // namespace
}  // namespace moeflux::cpu
