// The fast path for every 64-bit Arm processor, and the rounding for all of them.
#if defined(__aarch64__)

#include "backends/cpu/rounded_neon.h"

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

// How the digits of 16 elements are dealt, see RoundedLayout::place().
int8x16_t dealt(int8x16_t digits, int steps) noexcept {
  alignas(16) static constexpr std::uint8_t kOrders[2][16] = {
      {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15},
      {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}};
  return steps == 1 ? digits : vqtbl1q_s8(digits, vld1q_u8(kOrders[steps / 4]));
}

// The digits of a group; gives the sum of its codes. Rounded so, a code has a high digit of
// (code + 128) >> 8, and its low byte is the low one.
int place_group(const RoundedLayout& layout, const float* x, float inverse,
                std::byte* out) noexcept {
  const float32x4_t limit = vdupq_n_f32(layout.largest_code());
  int32x4_t sum = vdupq_n_s32(0);
  for (int k = 0; k < layout.group; k += 16) {
    const int16x8_t a = to_codes(x + k, inverse, limit), b = to_codes(x + k + 8, inverse, limit);
    sum = vpadalq_s16(vpadalq_s16(sum, a), b);
    const int8x16_t last = vmovn_high_s16(vmovn_s16(a), b);
    store(out + (layout.digits - 1) * layout.low_at + k, dealt(last, layout.steps));
    if (layout.digits == 2) {
      store(out + k, dealt(vrshrn_high_n_s16(vrshrn_n_s16(a, 8), b, 8), layout.steps));
    }
  }
  return vaddvq_s32(sum);
}

// The largest magnitude; NaN if there is one.
float largest_of(const float* x, int group) noexcept {
  float32x4_t largest = vdupq_n_f32(0);
  for (int k = 0; k < group; k += 4) largest = vmaxq_f32(largest, vabsq_f32(vld1q_f32(x + k)));
  return vmaxvq_f32(largest);
}

// ---- products

// Products of bytes are summed in 16 bits, as many as fit there: four of codes of 6 bits.
struct NeonDot {
  struct Sums {
    int32x4_t low, high;  // two lanes a row
  };

  template <bool Full>
  static void add(Sums& sums, const int8x16_t (&w)[4], int8x16_t x) noexcept {
    const int32x4_t fours = vreinterpretq_s32_s8(x);
    const int8x16_t digits[4] = {vreinterpretq_s8_s32(vdupq_laneq_s32(fours, 0)),
                                 vreinterpretq_s8_s32(vdupq_laneq_s32(fours, 1)),
                                 vreinterpretq_s8_s32(vdupq_laneq_s32(fours, 2)),
                                 vreinterpretq_s8_s32(vdupq_laneq_s32(fours, 3))};
    int16x8_t low = vdupq_n_s16(0), high = low;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const int8x8_t w_low = vget_low_s8(w[j]), x_low = vget_low_s8(digits[j]);
      low = Full || j == 0 ? vmull_s8(w_low, x_low) : vmlal_s8(low, w_low, x_low);
      high = Full || j == 0 ? vmull_high_s8(w[j], digits[j]) : vmlal_high_s8(high, w[j], digits[j]);
      if (Full || j == 3) {
        sums.low = vpadalq_s16(sums.low, low);
        sums.high = vpadalq_s16(sums.high, high);
      }
    }
  }
  static int32x4_t total(const Sums& sums) noexcept {
    return vpaddq_s32(sums.low, sums.high);
  }
};

}  // namespace

void rounded_quantize_neon(const RoundedLayout& layout, const float* x, std::byte* out) noexcept {
  const auto padding = static_cast<std::size_t>(layout.padded - layout.cols);
  const float limit = layout.largest_code();
  for (int digit = 0; digit < layout.digits; ++digit) {
    std::memset(out + digit * layout.low_at + layout.cols, 0, padding);
  }
  std::memset(out + layout.scales_at, 0,
              static_cast<std::size_t>(layout.row_bytes - layout.scales_at));
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    // A group that is not finite: codes of zero come from numbers of zero.
    alignas(16) static constexpr float kZeros[RoundedLayout::kMaxGroup] = {};
    float buffer[RoundedLayout::kMaxGroup];
    const float* values = rounded_values(layout, x, g, buffer);
    const float largest = largest_of(values, layout.group);
    const bool finite = largest < __builtin_inff();
    const float inverse = finite && largest > 0 ? limit / largest : 0.0f;
    const int sum = place_group(layout, finite ? values : kZeros, inverse, out + g * layout.group);
    const float scale = finite ? largest / limit : __builtin_nanf("");
    const float scaled_sum = scale * static_cast<float>(sum);
    store(out + layout.scales_at + g * 4, scale);
    if (layout.sums == RoundedSums::Scaled) store(out + layout.sums_at + g * 4, scaled_sum);
  }
  rounded_sums(layout, out);
}

const RoundedKernels& rounded_neon() {
  static constexpr RoundedKernels kKernels{.quantize = rounded_quantize_neon,
                                           .matmul = matmul<Neon<NeonDot>>};
  return kKernels;
}

}  // namespace moeflux::cpu

#endif
