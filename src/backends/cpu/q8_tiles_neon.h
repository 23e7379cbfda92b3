// Products with many rows of activations on 64-bit Arm: rows of weights are spread to bytes and
// interleaved, so that lanes are rows. Part of q8_neon.h, and included only where that is.
#pragma once

#include "backends/cpu/q8_neon.h"

namespace moeflux::cpu {
namespace {

// To [16 columns][block of 4 rows][4 columns][4 rows][4 codes].
template <int Bits>
void interleave_rows(const Rows& rows, std::int64_t cols) noexcept {
  for (int r = 0; r < rows.n_rows; r += 4) {
    const std::byte* const from[4] = {rows.data(r), rows.data(r + 1), rows.data(r + 2),
                                      rows.data(r + 3)};
    std::byte* to = rows.codes + r * 16;
    for (std::int64_t c = 0; c < cols; c += 16, to += rows.n_rows * 16) {
      uint32x4_t quads[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        uint8x16_t codes = load_16_codes<Bits>(from[i] + c * Bits / 8);
        if constexpr (Bits == 8) codes = veorq_u8(codes, vdupq_n_u8(0x80));  // signed
        quads[i] = vreinterpretq_u32_u8(codes);
      }
      transpose(quads);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) store(to + 16 * i, quads[i]);
    }
  }
}

// Sums of a group with N rows of activations.
template <class Dot, bool Full, int N>
struct TileSums {
  static constexpr int kBlocks = Dot::kRowBlocks;
  typename Dot::Quads products[N][kBlocks] = {};
  int32x4_t codes[N] = {};  // for codes of 8 bits

  // 16 columns.
  void add(const std::byte* w, const std::byte* x, std::int64_t row_bytes) noexcept {
    int8x16_t digits[N];
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      digits[i] = load<int8x16_t>(x + i * row_bytes);
      if (Full) Dot::add_codes(codes[i], digits[i]);
    }
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      int8x16_t weights[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) weights[j] = load<int8x16_t>(w + (b * 4 + j) * 16);
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        Dot::template add_quads<Full>(products[i][b], weights, digits[i]);
      }
    }
  }
  // What was added so far counts as high digits.
  void times_256() noexcept {
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      if (Full) codes[i] = vshlq_n_s32(codes[i], 8);
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) Dot::times_256(products[i][b]);
    }
  }
  int32x4_t total(int i, int block) const noexcept {
    const int32x4_t sum = Dot::total(products[i][block]);
    return Full ? vaddq_s32(sum, vshlq_n_s32(in_all_lanes(codes[i]), 7)) : sum;
  }
};

template <class Dot, bool Full, int Digits, int N>
void tile(const Q8Matmul& op, const Rows& rows, std::int64_t token) noexcept {
  constexpr int kBlocks = Dot::kRowBlocks, kRows = 4 * kBlocks;
  const Q8Layout& layout = *op.layout;
  const std::byte* x = op.x + token * layout.row_bytes;
  const std::int64_t row_bytes = layout.row_bytes, group = layout.group;
  float32x4_t acc[N][kBlocks] = {};
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    TileSums<Dot, Full, N> sums;
    for (int d = 0; d < Digits; ++d) {
      if (d == 1) sums.times_256();
      const std::byte* w = rows.codes + g * group * kRows;
      const std::byte* digits = x + d * layout.low_at + g * group;
      for (std::int64_t c = 0; c < group; c += 16) sums.add(w + c * kRows, digits + c, row_bytes);
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      const float x_scale = floats_at(x + i * row_bytes + layout.scales_at)[g];
      const float x_sum = floats_at(x + i * row_bytes + layout.sums_at)[g];
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) {
        acc[i][b] = add_group(acc[i][b], sums.total(i, b), rows.scales + g * kRows + 4 * b,
                              rows.biases + g * kRows + 4 * b, x_scale, x_sum);
      }
    }
  }
  store_products(op, rows.first, token, acc);
}

// N rows of activations at once as long as there are so many, then fewer.
template <class Dot, bool Full, int Digits, int N>
void tiles(const Q8Matmul& op, const Rows& rows, std::int64_t begin, std::int64_t end) noexcept {
  for (; begin + N <= end; begin += N) tile<Dot, Full, Digits, N>(op, rows, begin);
  if constexpr (N > 1) tiles<Dot, Full, Digits, N / 2>(op, rows, begin, end);
}

template <class Dot, int Digits>
void matmul_tiles(const Q8Matmul& op) noexcept {
  constexpr int kRows = 4 * Dot::kRowBlocks, kTokens = Dot::kTokens;
  const int bits = op.weight->format.bits;
  const std::int64_t fit = kCacheBytes / op.layout->row_bytes / kTokens * kTokens;
  const std::int64_t step = fit > kTokens ? fit : kTokens;
  for (std::int64_t begin = 0; begin < op.n; begin += step) {
    const std::int64_t end = begin + step < op.n ? begin + step : op.n;
    for (std::int64_t row = op.row; row < op.row + op.n_rows; row += kRows) {
      const Rows rows = open_rows(op, row, kRows);
      with_bits(bits, [&]<int Bits>() { interleave_rows<Bits>(rows, op.layout->cols); });
      bits == 8 ? tiles<Dot, true, Digits, kTokens>(op, rows, begin, end)
                : tiles<Dot, false, Digits, kTokens>(op, rows, begin, end);
    }
  }
}

template <class Dot>
void matmul(const Q8Matmul& op) noexcept {
  const bool two_digits = op.layout->digits == 2;
  if (op.layout->form == Q8Form::Blocks) {
    return two_digits ? matmul_blocks<Dot, 2>(op) : matmul_blocks<Dot, 1>(op);
  }
  return two_digits ? matmul_tiles<Dot, 2>(op) : matmul_tiles<Dot, 1>(op);
}

}  // namespace
}  // namespace moeflux::cpu
