// Products of quantized weights with rounded activations: the fast path.
//
// A row of activations is rounded per group (32, 64 or 128 values share a scale), to codes of 8
// bits, or of 16 that are kept as two digits of 8: code = 256 high + low. The sum of products of
// codes is an integer that fits into 32 bits, so it is exact in any order. The order of the rest is
// fixed, so that every instruction set, way through memory, number of rows and number of threads
// computes the same bits.
//
// Affine weights have groups in common with the activations. For group after group
//   sum (s_w q_w + b_w) (s_x q_x) = s_w s_x sum q_w q_x + b_w s_x sum q_x:
//
//   acc = fma(float(sum of products of codes), s_w * s_x, acc)
//   acc = fma(b_w, s_x * sum of codes, acc)
//
// where a code z that stands for zero is a bias of s_w * -z.
//
// Centered weights are small integers: E2M1 numbers doubled, or 4-bit codes of which 8 is zero. A
// group of activations takes in one or more of the weight (64 values, if those are smaller). For
// group after group of activations, and in it group after group of the weight from part = 0 on:
//
//   part = fma(float(sum of products of codes), s_w, part)
//   acc = fma(part, s_x, acc)
//
// and in the end acc * f. For E2M1, f is half of t, the scale of the whole matrix, or of 1 / t if
// that divides; else 1. Scales in E4M3 count as s_w / 256, and f 256 times: so they are 16-bit
// floats of the same bits.
//
// Blocks of GGUF (quant/block_codec.h) are integers as well, with scales that are floats, and some
// have biases for their groups:
//
//   part = fma(float(sum of products of integers), s_w, part)
//   part = fma(b_w, float(sum of codes of the activations), part)
//   acc = fma(part, s_x, acc)
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/interleave.h"

namespace moeflux::cpu {

// What a row of rounded activations holds besides codes and scales:
//   Scaled  float [n_groups]: s_x * sum of codes
//   Starts  int32 [n_weight_groups]: -centered * sum of codes. From there on, sums of products with
//           codes from 0 on are those with integers
//   Plain   float [n_weight_groups]: sum of codes
enum class RoundedSums : std::uint8_t { Scaled, Starts, Plain };

// How a row of rounded activations lies in memory, for weights of one format and width.
struct RoundedLayout {
  static constexpr int kMaxGroup = 128;

  RoundedLayout() = default;
  RoundedLayout(const WeightFormat& format, std::int64_t n_cols, int digits);

  int digits = 1;  // 8-bit digits of a code: 1 or 2
  int steps = 1;   // codes per byte of the weights: 4 or 2 for 2 or 4 bits, else 1
  // What makes integers of a centered weight codes from 0 on; 0: it is not centered.
  int centered = 0;
  RoundedSums sums = RoundedSums::Scaled;
  int group = 64;  // of activations; the last one of a row may be short
  int weight_group = 64;
  std::int64_t cols = 0;
  std::int64_t n_groups = 0;
  std::int64_t n_weight_groups = 0;
  // Parts of a row, in bytes from its begin. First the (high) digits: int8 [padded]
  std::int64_t padded = 0;     // a multiple of 64
  std::int64_t low_at = 0;     // int8 [padded]: low digits, if any
  std::int64_t scales_at = 0;  // float [n_groups, then zeros to a multiple of 16]: s_x
  std::int64_t sums_at = 0;    // the sums, then zeros to a multiple of 16
  std::int64_t row_bytes = 0;  // a multiple of 64

  // Where the digits of element i are. A dword of weights is shifted and masked to get at every
  // `steps`-th of its codes: their activations are neighbours.
  std::int64_t place(std::int64_t i) const {
    const std::int64_t within = i % (4 * steps);
    return i - within + within % steps * 4 + within / steps;
  }
  // The largest code: with it and its opposite, both digits fit.
  float largest_code() const { return digits == 2 ? 127.0f * 256.0f : 127.0f; }
  friend bool operator==(const RoundedLayout&, const RoundedLayout&) = default;
};

bool has_rounded(const WeightFormat& format);  // any in interleaved tiles

struct RoundedMatmul {
  const WeightView* weight;
  const RoundedLayout* layout;
  std::int64_t row;     // first row of the weight, which begins a tile
  std::int64_t n_rows;  // whole tiles, or up to the last row
  const std::byte* x;   // n rows of layout->row_bytes, 64-byte aligned
  std::int64_t n;
  float* y;  // y[target(i) * y_stride + r] is the product with row `row + r`
  std::int64_t y_stride;
  const std::int32_t* rows_out;  // target(i); null: i
  float* scratch;                // rounded_scratch_floats() of them
};

// Of a call with any n_rows and n.
std::int64_t rounded_scratch_floats(const RoundedLayout& layout);

// A tile of weights, as kernels want it: of 16 rows, those beyond the last of the weight being
// zero.
struct RoundedTile {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* biases;  // or zero points; null where groups have neither
  std::int64_t n_rows;      // that are there
};
// The one that begins at `row`; a short one is copied to the scratch of the call.
RoundedTile rounded_tile(const RoundedMatmul& op, std::int64_t row) noexcept;

// f of centered weights.
float rounded_factor(const WeightView& weight) noexcept;

// The parts of a call's scratch, each 64-byte aligned: for floats [group][row] of a tile's scales
// and biases, and for its codes as bytes, in the order of the activations: [dword][row][4].
struct RoundedScratch {
  float* scales;
  float* biases;
  std::byte* codes;
};
RoundedScratch rounded_scratch(const RoundedMatmul& op) noexcept;

struct RoundedKernels {
  // One row of layout.cols floats. A group with a value that is not finite gets a scale of NaN and
  // codes of zero: every product with it is NaN, as with floats.
  void (*quantize)(const RoundedLayout& layout, const float* x, std::byte* out) noexcept;
  void (*matmul)(const RoundedMatmul& op) noexcept;
};

// What quantize() does for all instruction sets alike: the values of group g, with zeros up to a
// whole group (buffer is for those), and in the end the sums from the digits, unless they are
// scaled.
const float* rounded_values(const RoundedLayout& layout, const float* x, std::int64_t g,
                            float (&buffer)[RoundedLayout::kMaxGroup]) noexcept;
void rounded_sums(const RoundedLayout& layout, std::byte* out) noexcept;

const RoundedKernels& rounded_scalar();
#if defined(__x86_64__)
const RoundedKernels& rounded_avx2();
const RoundedKernels& rounded_avx512();
const RoundedKernels& rounded_avx512vnni();
bool rounded_may_permute() noexcept;  // any bytes of a register: AVX-512 VBMI
#elif defined(__aarch64__)
const RoundedKernels& rounded_neon();
const RoundedKernels& rounded_neon_dotprod();
#endif

}  // namespace moeflux::cpu
