// Products with many rows of activations (Q8Form::Tiles). 16 rows of weights become a panel: their
// codes as bytes, 4 of a row in a dword and the 16 rows side by side. A dword of activations, in
// all lanes, times a register of the panel advances 16 products at once, and sums of a group need
// no shuffling.
#pragma once

#include "backends/cpu/q8_avx512.h"

namespace moeflux::cpu {
namespace {

constexpr std::int64_t kCacheBytes = 512 << 10;  // of activations that one pass goes over
constexpr int kTokens = 8;                       // rows of activations at once

// The panel of 16 rows: [cols / 4][16 rows][4 codes].
template <int Bits>
void make_panel(const RowSet& rows, std::int64_t cols, std::byte* panel) noexcept {
  for (std::int64_t c = 0; c < cols; c += 64) {
    const __mmask64 bytes = bytes_of_64<Bits>(cols - c);
    __m512i codes[16], columns[16];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) codes[r] = spread<Bits>(rows.data[r] + c * Bits / 8, bytes);
    transpose(codes, columns);
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) _mm512_store_si512(at(panel, c * kRows + k * 64), columns[k]);
  }
}

template <class Dot, bool Wide, int Digits, int N>
void panel_tokens(const Q8Layout& layout, const Scratch& weights, const std::byte* x,
                  float* const* y, __mmask16 valid) noexcept {
  __m512 acc[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) acc[i] = _mm512_setzero_ps();
  const std::byte* panel = weights.codes;
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    __m512i sums[Digits][N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      sums[0][i] = _mm512_setzero_si512();
      if (Digits == 2) sums[Digits - 1][i] = _mm512_setzero_si512();
    }
    for (int c = 0; c < layout.group; c += 4, panel += 64) {
      const __m512i codes = _mm512_load_si512(panel);
      const std::byte* digits = x + g * layout.group + c;
#pragma GCC unroll 2
      for (int digit = 0; digit < Digits; ++digit) {
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) {
          int four;
          std::memcpy(&four, digits + digit * layout.low_at + i * layout.row_bytes, sizeof four);
          sums[digit][i] = Dot::template add<Wide>(sums[digit][i], codes, _mm512_set1_epi32(four));
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      const std::byte* xi = x + i * layout.row_bytes;
      __m512i sum = sums[0][i];
      if (Digits == 2) sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 8), sums[Digits - 1][i]);
      acc[i] =
          add_group(acc[i], sum, weights, g, static_cast<const float*>(at(xi, layout.scales_at))[g],
                    static_cast<const float*>(at(xi, layout.sums_at))[g]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) _mm512_mask_storeu_ps(y[i], valid, acc[i]);
}

// Products of a panel with rows [begin, end) of the activations.
template <class Dot, bool Wide, int Digits>
struct PanelOf {
  static constexpr decltype(&panel_tokens<Dot, Wide, Digits, 1>) kBySize[kTokens] = {
      panel_tokens<Dot, Wide, Digits, 1>, panel_tokens<Dot, Wide, Digits, 2>,
      panel_tokens<Dot, Wide, Digits, 3>, panel_tokens<Dot, Wide, Digits, 4>,
      panel_tokens<Dot, Wide, Digits, 5>, panel_tokens<Dot, Wide, Digits, 6>,
      panel_tokens<Dot, Wide, Digits, 7>, panel_tokens<Dot, Wide, Digits, 8>};

  static void multiply(const Q8Matmul& op, const Scratch& weights, std::int64_t row,
                       __mmask16 valid, std::int64_t begin, std::int64_t end) noexcept {
    const std::int64_t n_blocks = (end - begin + kTokens - 1) / kTokens;  // of about equal size
    for (std::int64_t block = 0, i = begin, n = 0; block < n_blocks; ++block, i += n) {
      float* y[kTokens];
      n = (end - i + n_blocks - block - 1) / (n_blocks - block);
      for (std::int64_t k = 0; k < n; ++k) y[k] = row_of_y(op, i + k, row);
      const std::byte* x = op.x + i * op.layout->row_bytes;
      kBySize[n - 1](*op.layout, weights, x, y, valid);
    }
  }
};

// Panel<Wide, Digits>::multiply is what multiplies a panel; Wide: codes have 8 bits.
template <template <bool, int> class Panel>
void matmul_tiles(const Q8Matmul& op) noexcept {
  const Q8Layout& layout = *op.layout;
  const WeightView& w = *op.weight;
  const Scratch scratch(op);
  const std::int64_t fit = kCacheBytes / layout.row_bytes / 16 * 16;
  const std::int64_t step = fit > 16 ? fit : 16;
  const std::int64_t last = op.row + op.n_rows;
  const auto multiply =
      w.format.bits == 8
          ? (layout.digits == 1 ? Panel<true, 1>::multiply : Panel<true, 2>::multiply)
          : (layout.digits == 1 ? Panel<false, 1>::multiply : Panel<false, 2>::multiply);
  for (std::int64_t begin = 0; begin < op.n; begin += step) {
    const std::int64_t end = begin + step < op.n ? begin + step : op.n;
    for (std::int64_t row = op.row; row < last; row += kRows) {
      const std::int64_t n_rows = last - row < kRows ? last - row : kRows;
      load_planes(w, row, n_rows, layout.n_groups, scratch);
      const RowSet rows(w.data, row, n_rows, layout.cols * w.format.bits / 8);
      with_bits(w.format.bits,
                [&]<int Bits>() { make_panel<Bits>(rows, layout.cols, scratch.codes); });
      multiply(op, scratch, row, first_lanes(n_rows), begin, end);
    }
  }
}

}  // namespace
}  // namespace moeflux::cpu
