// The fast path for 64-bit Arm with the dot product extension; reached only through the table.
#if defined(__aarch64__)

#include "backends/cpu/rounded_neon.h"

namespace moeflux::cpu {
namespace {

struct DotProduct {
  using Sums = int32x4_t;

  template <bool Full>
  static void add(Sums& sums, const int8x16_t (&w)[4], int8x16_t x) noexcept {
    sums = vdotq_laneq_s32(sums, w[0], x, 0);
    sums = vdotq_laneq_s32(sums, w[1], x, 1);
    sums = vdotq_laneq_s32(sums, w[2], x, 2);
    sums = vdotq_laneq_s32(sums, w[3], x, 3);
  }
  static int32x4_t total(Sums sums) noexcept { return sums; }
};

}  // namespace

const RoundedKernels& rounded_neon_dotprod() {
  static constexpr RoundedKernels kKernels{.quantize = rounded_quantize_neon,
                                           .matmul = matmul<Neon<DotProduct>>};
  return kKernels;
}

}  // namespace moeflux::cpu

#endif
