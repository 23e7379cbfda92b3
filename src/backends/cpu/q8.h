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

#include "quant/weight_format.h"

namespace moeflux::cpu {

enum class Q8Form {
  // For few rows of activations. Weights are used as they lie in memory, 64 bytes at a time: the
  // codes of a block are ordered [code within its byte][byte], so that shifting and masking a block
  // of weights lines up with them. Codes of 3, 5 and 6 bits are spread to bytes first.
  Blocks,
  // For many. Rows of weights are spread to bytes and interleaved first; codes are in their order.
  Tiles,
};

// How a row of rounded activations lies in memory, for weights of one format and width.
struct Q8Layout {
  static constexpr int kBlockBytes = 64;  // of weights
  static constexpr int kMaxGroup = 128;
  // Rows of activations. Interleaving costs as much as some products, so a few more than a kernel
  // takes at once go over the same blocks again, which are in the cache by then.
  static constexpr std::int64_t kTilesFrom = 8;
  static constexpr int kBlockTokens = 3;  // that kernels of Blocks take at once

  Q8Layout() = default;
  // For products with n rows of activations.
  Q8Layout(const WeightFormat& format, std::int64_t n_cols, int digits, std::int64_t n);

  Q8Form form = Q8Form::Blocks;
  int digits = 1;  // 8-bit digits of a code: 1 or 2
  int bits = 8;    // of the weight's codes as the kernel reads them: 2, 4 or 8
  int steps = 1;   // codes per byte of a block
  int group = 64;
  std::int64_t cols = 0;
  std::int64_t n_groups = 0;
  std::int64_t n_blocks = 0;  // of 64 * steps codes; the last may reach beyond the row
  // Parts of a row, in bytes from its begin. First the (high) digits: int8 [padded]
  std::int64_t padded = 0;     // a multiple of 64
  std::int64_t low_at = 0;     // int8 [padded]: low digits, if any
  std::int64_t scales_at = 0;  // float [n_groups, then zeros to a multiple of 16]: s_x
  std::int64_t sums_at = 0;    // the same: s_x * sum of codes
  std::int64_t row_bytes = 0;  // a multiple of 64

  std::int64_t block_codes() const { return std::int64_t{kBlockBytes} * steps; }
  // Where the digits of element i are.
  std::int64_t place(std::int64_t i) const {
    if (steps == 1) return i;
    const std::int64_t within = i % block_codes();
    return i - within + within % steps * kBlockBytes + within / steps;
  }
  // The largest code: with it and its opposite, both digits fit.
  float largest_code() const { return digits == 2 ? 127.0f * 256.0f : 127.0f; }
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

// Rows of weights that kernels take at once: a multiple of it makes the best use of them.
constexpr std::int64_t kQ8Rows = 16;

// Of a call with any n_rows and n.
std::int64_t q8_scratch_floats(const Q8Layout& layout);

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
