// Products of affine weights with rounded activations: the fast path.
//
// A row of activations is rounded per group of the weight (32, 64 or 128 values share a scale), to
// codes of 8 bits, or of 16 that are kept as two digits of 8: code = 256 high + low. Then
//   sum (s_w q_w + b_w) (s_x q_x) = s_w s_x sum q_w q_x + b_w s_x sum q_x   per group.
// The sum of products of codes is an integer that fits into 32 bits, so it is exact in any order.
// The order of the rest is fixed, so that every instruction set, way through memory, number of rows
// and number of threads computes the same bits. For group after group:
//
//   acc = fma(float(sum of products of codes), s_w * s_x, acc)
//   acc = fma(b_w, s_x * sum of codes, acc)
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/panels.h"

namespace moeflux::cpu {

// How a row of rounded activations lies in memory, for weights of one format and width.
struct Q8Layout {
  static constexpr int kMaxGroup = 128;

  Q8Layout() = default;
  Q8Layout(const WeightFormat& format, std::int64_t n_cols, int digits);

  int digits = 1;  // 8-bit digits of a code: 1 or 2
  int steps = 1;   // codes per byte of the weights: 4 or 2 for 2 or 4 bits, else 1
  int group = 64;
  std::int64_t cols = 0;
  std::int64_t n_groups = 0;
  // Parts of a row, in bytes from its begin. First the (high) digits: int8 [padded]
  std::int64_t padded = 0;     // a multiple of 64
  std::int64_t low_at = 0;     // int8 [padded]: low digits, if any
  std::int64_t scales_at = 0;  // float [n_groups, then zeros to a multiple of 16]: s_x
  std::int64_t sums_at = 0;    // the same: s_x * sum of codes
  std::int64_t row_bytes = 0;  // a multiple of 64

  // Where the digits of element i are. A dword of weights is shifted and masked to get at every
  // `steps`-th of its codes: their activations are neighbours.
  std::int64_t place(std::int64_t i) const {
    const std::int64_t within = i % (4 * steps);
    return i - within + within % steps * 4 + within / steps;
  }
  // The largest code: with it and its opposite, both digits fit.
  float largest_code() const { return digits == 2 ? 127.0f * 256.0f : 127.0f; }
  friend bool operator==(const Q8Layout&, const Q8Layout&) = default;
};

bool has_q8(const WeightFormat& format);  // affine, in panels

struct Q8Matmul {
  const WeightView* weight;
  const Q8Layout* layout;
  std::int64_t row;     // first row of the weight, which begins a panel
  std::int64_t n_rows;  // whole panels, or up to the last row
  const std::byte* x;   // n rows of layout->row_bytes, 64-byte aligned
  std::int64_t n;
  float* y;  // y[target(i) * y_stride + r] is the product with row `row + r`
  std::int64_t y_stride;
  const std::int32_t* rows_out;  // target(i); null: i
  float* scratch;                // q8_scratch_floats() of them
};

// Of a call with any n_rows and n.
std::int64_t q8_scratch_floats(const Q8Layout& layout);

// A panel of weights, as kernels want it: of 16 rows, those beyond the last of the weight being
// zero.
struct Q8Panel {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* biases;
  std::int64_t n_rows;  // that are there
};
// The one that begins at `row`; a short one is copied to the scratch of the call.
Q8Panel q8_panel(const Q8Matmul& op, std::int64_t row) noexcept;

// The parts of a call's scratch, each 64-byte aligned: for floats [group][row] of a panel's scales
// and biases, and for its codes as bytes, in the order of the activations: [dword][row][4].
struct Q8Scratch {
  float* scales;
  float* biases;
  std::byte* codes;
};
Q8Scratch q8_scratch(const Q8Matmul& op) noexcept;

struct Q8Kernels {
  // One row of layout.cols floats. A group with a value that is not finite gets a scale of NaN and
  // codes of zero: every product with it is NaN, as with floats.
  void (*quantize)(const Q8Layout& layout, const float* x, std::byte* out) noexcept;
  void (*matmul)(const Q8Matmul& op) noexcept;
};

const Q8Kernels& q8_scalar();
#if defined(__x86_64__)
const Q8Kernels& q8_avx2();
const Q8Kernels& q8_avx512();
const Q8Kernels& q8_avx512vnni();
#elif defined(__aarch64__)
const Q8Kernels& q8_neon();
const Q8Kernels& q8_neon_dotprod();
#endif

}  // namespace moeflux::cpu
