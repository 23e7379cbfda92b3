// The fast path for every 64-bit Arm processor, and the rounding for all of them.
#if defined(__aarch64__)

#include "backends/cpu/q8_neon.h"

#include <cstring>

#include "backends/cpu/q8_blocks_neon.h"
#include "backends/cpu/q8_tiles_neon.h"

namespace moeflux::cpu {
namespace {

// ---- rounding

float32x4_t cut(float32x4_t x, float32x4_t limit) noexcept {
  return vmaxq_f32(vminq_f32(x, limit), vnegq_f32(limit));
}

int16x8_t to_codes(const float* x, float inverse, float32x4_t limit) noexcept {
  const float32x4_t low = cut(vmulq_n_f32(vld1q_f32(x), inverse), limit);
  const float32x4_t high = cut(vmulq_n_f32(vld1q_f32(x + 4), inverse), limit);
  return vmovn_high_s32(vmovn_s32(vcvtnq_s32_f32(low)), vcvtnq_s32_f32(high));
}

// 32 digits to the places of 32 elements that follow each other in a block.
template <int Steps>
void place_digits(int8x16_t a, int8x16_t b, std::byte* at) noexcept {
  if constexpr (Steps == 1) {
    store(at, a);
    store(at + 16, b);
  } else if constexpr (Steps == 2) {
    store(at, vuzp1q_s8(a, b));
    store(at + kBlock, vuzp2q_s8(a, b));
  } else {
    const int8x16_t even = vuzp1q_s8(a, b), odd = vuzp2q_s8(a, b);
    store(at, vget_low_s8(vuzp1q_s8(even, even)));
    store(at + kBlock, vget_low_s8(vuzp1q_s8(odd, odd)));
    store(at + 2 * kBlock, vget_low_s8(vuzp2q_s8(even, even)));
    store(at + 3 * kBlock, vget_low_s8(vuzp2q_s8(odd, odd)));
  }
}

// Rounded so, a code has a high digit of (code + 128) >> 8, and its low byte is the low one.
template <int Steps, int Digits>
int quantize_32(const float* x, float inverse, float32x4_t limit, std::byte* high,
                std::byte* low) noexcept {
  int16x8_t codes[4];
  for (int i = 0; i < 4; ++i) codes[i] = to_codes(x + 8 * i, inverse, limit);
  const int8x16_t last_a = vmovn_high_s16(vmovn_s16(codes[0]), codes[1]);
  const int8x16_t last_b = vmovn_high_s16(vmovn_s16(codes[2]), codes[3]);
  if constexpr (Digits == 1) {
    place_digits<Steps>(last_a, last_b, high);
  } else {
    place_digits<Steps>(vrshrn_high_n_s16(vrshrn_n_s16(codes[0], 8), codes[1], 8),
                        vrshrn_high_n_s16(vrshrn_n_s16(codes[2], 8), codes[3], 8), high);
    place_digits<Steps>(last_a, last_b, low);
  }
  int32x4_t sum = vpaddlq_s16(codes[0]);
  for (int i = 1; i < 4; ++i) sum = vpadalq_s16(sum, codes[i]);
  return vaddvq_s32(sum);
}

template <int Steps, int Digits>
void quantize_groups(const Q8Layout& layout, const float* x, std::byte* out, float* scales,
                     float* sums) noexcept {
  constexpr float kLimit = Digits == 2 ? 127.0f * 256.0f : 127.0f;
  constexpr std::int64_t kBlockCodes = std::int64_t{kBlock} * Steps;
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    const std::int64_t begin = g * layout.group, end = begin + layout.group;
    float32x4_t largest = vdupq_n_f32(0);  // NaN, once there is one
    for (std::int64_t i = begin; i < end; i += 4) {
      largest = vmaxq_f32(largest, vabsq_f32(vld1q_f32(x + i)));
    }
    const float top = vmaxvq_f32(largest);
    const bool finite = top < __builtin_inff();
    // A group that is not finite: codes of zero come from numbers of zero.
    alignas(16) static constexpr float kZeros[Q8Layout::kMaxGroup] = {};
    const float* values = finite ? x + begin : kZeros;
    const float inverse = finite && top > 0 ? kLimit / top : 0.0f;
    int sum = 0;
    for (std::int64_t i = begin; i < end; i += 32) {
      std::byte* at = out + i / kBlockCodes * kBlockCodes + i % kBlockCodes / Steps;
      sum += quantize_32<Steps, Digits>(values + i - begin, inverse, vdupq_n_f32(kLimit), at,
                                        at + layout.low_at);
    }
    scales[g] = finite ? top / kLimit : __builtin_nanf("");
    sums[g] = scales[g] * static_cast<float>(sum);
  }
}

// ---- products

// Products of bytes are summed in 16 bits, as many as fit there: four of codes of 6 bits.
struct NeonDot {
  static constexpr int kRowBlocks = 2, kTokens = 2;

  template <bool Full, int Steps>
  static void add(int32x4_t& sums, const int8x16_t (&w)[Steps],
                  const int8x16_t (&x)[Steps]) noexcept {
    int16x8_t products = vmull_s8(vget_low_s8(w[0]), vget_low_s8(x[0]));
    if constexpr (Full) {
      sums = vpadalq_s16(sums, products);
      products = vmull_high_s8(w[0], x[0]);
    } else {
      products = vmlal_high_s8(products, w[0], x[0]);
#pragma GCC unroll 3
      for (int i = 1; i < Steps; ++i) {
        products = vmlal_s8(products, vget_low_s8(w[i]), vget_low_s8(x[i]));
        products = vmlal_high_s8(products, w[i], x[i]);
      }
    }
    sums = vpadalq_s16(sums, products);
  }
  static void add_codes(int32x4_t& sums, int8x16_t x) noexcept {
    sums = vpadalq_s16(sums, vpaddlq_s8(x));
  }

  struct Quads {
    int32x4_t low, high;  // two lanes a row
  };
  template <bool Full>
  static void add_quads(Quads& quads, const int8x16_t (&w)[4], int8x16_t x) noexcept {
    const int32x4_t words = vreinterpretq_s32_s8(x);
    const int8x16_t digits[4] = {vreinterpretq_s8_s32(vdupq_laneq_s32(words, 0)),
                                 vreinterpretq_s8_s32(vdupq_laneq_s32(words, 1)),
                                 vreinterpretq_s8_s32(vdupq_laneq_s32(words, 2)),
                                 vreinterpretq_s8_s32(vdupq_laneq_s32(words, 3))};
    int16x8_t low = vdupq_n_s16(0), high = low;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const int8x8_t w_low = vget_low_s8(w[j]), x_low = vget_low_s8(digits[j]);
      low = Full || j == 0 ? vmull_s8(w_low, x_low) : vmlal_s8(low, w_low, x_low);
      high = Full || j == 0 ? vmull_high_s8(w[j], digits[j]) : vmlal_high_s8(high, w[j], digits[j]);
      if (Full || j == 3) {
        quads.low = vpadalq_s16(quads.low, low);
        quads.high = vpadalq_s16(quads.high, high);
      }
    }
  }
  static void times_256(Quads& quads) noexcept {
    quads = {vshlq_n_s32(quads.low, 8), vshlq_n_s32(quads.high, 8)};
  }
  static int32x4_t total(const Quads& quads) noexcept {
    return vpaddq_s32(quads.low, quads.high);
  }
};

}  // namespace

void q8_quantize_neon(const Q8Layout& layout, const float* x, std::byte* out) noexcept {
  // What lies beyond the row is zero: whole blocks, because codes are dealt within them, and
  // floats.
  const std::int64_t whole = layout.cols / layout.block_codes() * layout.block_codes();
  for (int d = 0; d < layout.digits; ++d) {
    std::memset(out + d * layout.low_at + whole, 0,
                static_cast<std::size_t>(layout.padded - whole));
  }
  std::memset(out + layout.scales_at, 0,
              static_cast<std::size_t>(layout.row_bytes - layout.scales_at));
  auto* scales = static_cast<float*>(static_cast<void*>(out + layout.scales_at));
  auto* sums = static_cast<float*>(static_cast<void*>(out + layout.sums_at));
  const auto with_steps = [&]<int Steps>() {
    layout.digits == 2 ? quantize_groups<Steps, 2>(layout, x, out, scales, sums)
                       : quantize_groups<Steps, 1>(layout, x, out, scales, sums);
  };
  switch (layout.steps) {
    case 1:
      return with_steps.template operator()<1>();
    case 2:
      return with_steps.template operator()<2>();
    default:
      return with_steps.template operator()<4>();
  }
}

const Q8Kernels& q8_neon() {
  static constexpr Q8Kernels kKernels{.quantize = q8_quantize_neon, .matmul = matmul<NeonDot>};
  return kKernels;
}

}  // namespace moeflux::cpu

#endif
