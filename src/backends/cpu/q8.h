// Products of affine weights with activations rounded to 8 bits: the fast path.
//
// A row of activations is rounded per group of the weight (32, 64 or 128 values share a scale).
// Then  sum (s_w q_w + b_w) (s_x q_x) = s_w s_x sum q_w q_x + b_w s_x sum q_x  per group, and the
// sum of codes is exact in integers. The order of everything else is fixed, so that every
// instruction set, number of rows and number of threads computes the same bits:
//
//   a lane is the codes in 4 bytes of a weight row, a block is 16 lanes;
//   acc[lane] = fma(float(integer sum of the lane), s_w * s_x, acc[lane]), block after block;
//   acc[g mod 16] = fma(b_w[g], s_x sum q_x of group g, acc[g mod 16]), group after group;
//   the 16 lanes are added in the tree 8, 4, 2, 1.
//
// Weights of 3, 5 or 6 bits are spread to bytes first and then treated as 8 bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/weight_format.h"

namespace moeflux::cpu {

// How a row of activations lies in memory for weights of one format and width. In a block the code
// of element i is at [i mod steps][i / steps]: all first codes of the weight's bytes, then all
// second ones, so that shifting and masking a block of weights lines up with it.
struct Q8Layout {
  static constexpr int kLanes = 16;
  static constexpr int kBlockBytes = 64;  // of weights
  static constexpr int kMaxGroup = 128;

  Q8Layout() = default;
  Q8Layout(const WeightFormat& format, std::int64_t n_cols);

  int bits = 8;   // of the codes as the kernel reads them: 2, 4 or 8
  int steps = 1;  // codes per byte
  int group = 64;
  std::int64_t cols = 0;
  std::int64_t n_groups = 0;
  std::int64_t n_blocks = 0;
  // Parts of a row, in bytes from its begin.
  std::int64_t scales_at = 0;  // float [n_groups, then zeros to a multiple of 16]: s_x
  std::int64_t sums_at = 0;    // the same: s_x sum q_x
  std::int64_t row_bytes = 0;  // a multiple of 64

  std::int64_t block_codes() const { return std::int64_t{kBlockBytes} * steps; }
  std::int64_t lane_codes() const { return 4 * steps; }
  // Groups are taken 16 at a time: a chunk, which is a whole number of blocks.
  std::int64_t n_chunks() const { return (n_groups + kLanes - 1) / kLanes; }
  std::int64_t chunk_blocks() const { return kLanes * group / block_codes(); }
  friend bool operator==(const Q8Layout&, const Q8Layout&) = default;
};

bool has_q8(const WeightFormat& format);  // affine

struct Q8Matmul {
  const WeightView* weight;
  const Q8Layout* layout;
  std::int64_t row;  // first row of the weight
  std::int64_t n_rows;
  const std::byte* x;  // n rows of layout->row_bytes, 64-byte aligned
  std::int64_t n;
  float* y;  // y[target(i) * y_stride + r] is the product with row `row + r`
  std::int64_t y_stride;
  const std::int32_t* rows_out;  // target(i); null: i
  float* scratch;                // q8_scratch_floats() of them
};

// Of a call with any n_rows.
std::int64_t q8_scratch_floats(const Q8Layout& layout);

struct Q8Kernels {
  // One row of layout.cols floats. When `rest` is not null, what rounding left over becomes a row
  // of its own: the sum of the products of both is that of activations rounded to 16 bits.
  void (*quantize)(const Q8Layout& layout, const float* x, std::byte* out,
                   std::byte* rest) noexcept;
  void (*matmul)(const Q8Matmul& op) noexcept;
};

const Q8Kernels& q8_scalar();
#if defined(__x86_64__)
const Q8Kernels& q8_avx2();
const Q8Kernels& q8_avx512();
const Q8Kernels& q8_avx512vnni();
#endif

}  // namespace moeflux::cpu
