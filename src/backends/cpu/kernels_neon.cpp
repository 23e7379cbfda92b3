// The exact kernels for 64-bit Arm. All of its processors have NEON.
#if defined(__aarch64__)

#include <cstdint>

#include <arm_neon.h>

#include "backends/cpu/attention_kernels.h"
#include "backends/cpu/delta_step.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/row_dots.h"
#include "backends/cpu/rows.h"

namespace moeflux::cpu {
namespace {

// The 16 partial sums.
struct Sums {
  float32x4_t lanes[4] = {};
};

void accumulate(Sums& s, const float* a, const float* b) noexcept {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    s.lanes[i] = vaddq_f32(s.lanes[i], vmulq_f32(vld1q_f32(a + 4 * i), vld1q_f32(b + 4 * i)));
  }
}

// The tail goes to lanes 0, 1, ...; then the tree of the scalar reference: 16, 8, 4, 2, 1.
float finish(Sums s, const float* a, const float* b, std::int64_t n_tail) noexcept {
  if (n_tail > 0) {
    float lanes[16];
    for (int i = 0; i < 4; ++i) vst1q_f32(lanes + 4 * i, s.lanes[i]);
    for (std::int64_t i = 0; i < n_tail; ++i) lanes[i] += a[i] * b[i];
    for (int i = 0; i < 4; ++i) s.lanes[i] = vld1q_f32(lanes + 4 * i);
  }
  const float32x4_t four =
      vaddq_f32(vaddq_f32(s.lanes[0], s.lanes[2]), vaddq_f32(s.lanes[1], s.lanes[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

float dot(const float* a, const float* b, std::int64_t n) noexcept {
  Sums s;
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) accumulate(s, a + i, b + i);
  return finish(s, a + i, b + i, n - i);
}

void axpy(float scale, const float* x, float* y, std::int64_t n) noexcept {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const float32x4_t low = vmulq_n_f32(vld1q_f32(x + i), scale);
    const float32x4_t high = vmulq_n_f32(vld1q_f32(x + i + 4), scale);
    vst1q_f32(y + i, vaddq_f32(vld1q_f32(y + i), low));
    vst1q_f32(y + i + 4, vaddq_f32(vld1q_f32(y + i + 4), high));
  }
  for (; i < n; ++i) y[i] += scale * x[i];
}

KernelTable table(const char* name, const RoundedKernels& rounded) noexcept {
  return {.name = name,
          .decode_row = decode_row_neon,
          .dot = dot,
          .row_dots = row_dots<Floats4>,
          .axpy = axpy,
          .matvec = matvec_neon,
          .delta_step = delta_step<Floats4>,
          .sigmoid_row = sigmoid_row<Floats4>,
          .silu_row = silu_row<Floats4>,
          .conv_row = conv_row<Floats4>,
          .attention = &attention_kernels<Floats4>(),
          .rounded = &rounded};
}

}  // namespace

const KernelTable& neon_kernels() {
  static const KernelTable kTable = table("neon", rounded_neon());
  return kTable;
}

const KernelTable& neon_dotprod_kernels() {
  static const KernelTable kTable = table("neon_dotprod", rounded_neon_dotprod());
  return kTable;
}

}  // namespace moeflux::cpu

#endif
