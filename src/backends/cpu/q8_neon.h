// The fast path for 64-bit Arm, with the inner products left open: many processors have an
// instruction for products of bytes. Included only by the files compiled for such processors;
// everything here has internal linkage, and nothing is included that could be instantiated here and
// linked into code for other processors.
//
// A Dot has, for signed bytes w (weights) and x (digits of activations):
//
//   kRowBlocks, kTokens           the largest tile: blocks of 4 rows of weights, activations
//   add<Full>(sums, w, x)         adds the products of 16 bytes, each to any lane of sums
//   add_codes(sums, x)            the same with ones for weights
//   Quads                         sums of 4 rows of weights
//   add_quads<Full>(quads, w, x)  16 columns; w[j] has columns 4 j to 4 j + 3 of each row
//   times_256(quads)
//   total(quads)                  one lane per row
//
// Full: weights may have any value of a byte; else they are codes of at most 6 bits.
//
// Codes of 8 bits are made signed by taking 128 from them, and 128 times the sum of the codes of
// the activations is added to the sum of products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <arm_neon.h>

#include "backends/cpu/codes_neon.h"
#include "backends/cpu/q8.h"
#include "backends/cpu/with_format.h"

namespace moeflux::cpu {

void q8_quantize_neon(const Q8Layout& layout, const float* x, std::byte* out) noexcept;

namespace {

constexpr int kBlock = Q8Layout::kBlockBytes;
// The rows of a product are short streams that the processor does not foresee.
constexpr std::int64_t kAhead = 16 << 10;
constexpr std::int64_t kCacheBytes = 256 << 10;  // of activations that one pass goes over

// ---- weights

// What kernels for few rows of activations read.
enum class Stored {
  Two,
  TwoHalf,  // groups are half a register
  Four,
  Spread,  // codes of 3, 5 and 6 bits, spread to bytes
  Eight,
};

constexpr int steps_of(Stored stored) noexcept {
  return stored == Stored::Four ? 2 : stored == Stored::Spread || stored == Stored::Eight ? 1 : 4;
}

// Some rows of weights. Planes are [n_groups, n_rows].
struct Rows {
  const WeightView* weight;
  std::int64_t first, last;  // rows beyond the last are the last once more
  int n_rows;                // a multiple of 4
  float* scales;
  float* biases;
  std::byte* codes;  // room for spread ones

  std::int64_t at(int r) const noexcept { return first + r < last ? first + r : last; }
  const std::byte* data(int r) const noexcept {
    return weight->data + at(r) * (weight->cols * weight->format.bits / 8);
  }
};

void transpose(uint32x4_t (&v)[4]) noexcept {
  const auto wide = [](uint32x4_t a) { return vreinterpretq_u64_u32(a); };
  const auto narrow = [](uint64x2_t a) { return vreinterpretq_u32_u64(a); };
  const uint64x2_t even01 = wide(vtrn1q_u32(v[0], v[1])), odd01 = wide(vtrn2q_u32(v[0], v[1]));
  const uint64x2_t even23 = wide(vtrn1q_u32(v[2], v[3])), odd23 = wide(vtrn2q_u32(v[2], v[3]));
  v[0] = narrow(vtrn1q_u64(even01, even23));
  v[1] = narrow(vtrn1q_u64(odd01, odd23));
  v[2] = narrow(vtrn2q_u64(even01, even23));
  v[3] = narrow(vtrn2q_u64(odd01, odd23));
}

// n <= 4 numbers as floats, then zeros.
uint32x4_t load_numbers(DType dtype, const std::byte* at, std::int64_t n) noexcept {
  const std::size_t bytes = dtype == DType::F32 ? 4 : 2;
  uint32x4_t words = vdupq_n_u32(0);
  if (n < 4) {
    std::memcpy(&words, at, static_cast<std::size_t>(n) * bytes);
  } else if (dtype == DType::F32) {
    words = load<uint32x4_t>(at);
  } else {
    words = vcombine_u32(load<uint32x2_t>(at), vdup_n_u32(0));
  }
  if (dtype == DType::F32) return words;
  const uint16x4_t halves = vget_low_u16(vreinterpretq_u16_u32(words));
  if (dtype == DType::F16) {
    return vreinterpretq_u32_f32(vcvt_f32_f16(vreinterpret_f16_u16(halves)));
  }
  return vshll_n_u16(halves, 16);
}

void load_plane(const Rows& rows, const std::byte* plane, std::int64_t n_groups,
                float* out) noexcept {
  const DType dtype = rows.weight->format.scale_dtype;
  const std::int64_t bytes = dtype == DType::F32 ? 4 : 2;
  for (int r = 0; r < rows.n_rows; r += 4) {
    for (std::int64_t g = 0; g < n_groups; g += 4) {
      const std::int64_t n = n_groups - g < 4 ? n_groups - g : 4;
      uint32x4_t numbers[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        numbers[i] = load_numbers(dtype, plane + (rows.at(r + i) * n_groups + g) * bytes, n);
      }
      transpose(numbers);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        if (i < n) vst1q_f32(out + (g + i) * rows.n_rows + r, vreinterpretq_f32_u32(numbers[i]));
      }
    }
  }
}

Rows open_rows(const Q8Matmul& op, std::int64_t first, int n_rows) noexcept {
  const std::int64_t n_groups = op.layout->n_groups;
  const auto address = reinterpret_cast<std::uintptr_t>(op.scratch);
  float* planes = op.scratch + (64 - address % 64) % 64 / sizeof(float);
  Rows rows{.weight = op.weight,
            .first = first,
            .last = op.row + op.n_rows - 1,
            .n_rows = n_rows,
            .scales = planes,
            .biases = planes + n_groups * n_rows,
            .codes = nullptr};
  void* rest = planes + 2 * n_groups * n_rows;
  rows.codes = static_cast<std::byte*>(rest);
  load_plane(rows, op.weight->scales, n_groups, rows.scales);
  load_plane(rows, op.weight->biases, n_groups, rows.biases);
  return rows;
}

// ---- products

// One group of 4 rows of weights with one row of activations, as q8.h says.
float32x4_t add_group(float32x4_t acc, int32x4_t sum, const float* scales, const float* biases,
                      float x_scale, float x_sum) noexcept {
  acc = vfmaq_f32(acc, vcvtq_f32_s32(sum), vmulq_n_f32(vld1q_f32(scales), x_scale));
  return vfmaq_n_f32(acc, vld1q_f32(biases), x_sum);
}

// The sum of the lanes, in all lanes.
int32x4_t in_all_lanes(int32x4_t lanes) noexcept {
  const int32x4_t pairs = vpaddq_s32(lanes, lanes);
  return vpaddq_s32(pairs, pairs);
}

const float* floats_at(const std::byte* at) noexcept {
  return static_cast<const float*>(static_cast<const void*>(at));
}

// Products with activations `token` and following; those of rows beyond the last are dropped.
template <int N, int Blocks>
void store_products(const Q8Matmul& op, std::int64_t row, std::int64_t token,
                    const float32x4_t (&acc)[N][Blocks]) noexcept {
  const std::int64_t left = op.row + op.n_rows - row;
  for (int i = 0; i < N; ++i) {
    const std::int64_t target = op.rows_out != nullptr ? op.rows_out[token + i] : token + i;
    float* y = op.y + target * op.y_stride + row - op.row;
    for (int b = 0; b < Blocks; ++b) {
      if (left >= 4 * b + 4) {
        vst1q_f32(y + 4 * b, acc[i][b]);
      } else {
        for (int r = 4 * b; r < left; ++r) y[r] = acc[i][b][r - 4 * b];
      }
    }
  }
}

}  // namespace
}  // namespace moeflux::cpu
