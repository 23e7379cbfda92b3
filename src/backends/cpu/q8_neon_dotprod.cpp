// The fast path for 64-bit Arm with the dot product extension; reached only through the table.
#if defined(__aarch64__)

#include "backends/cpu/q8_blocks_neon.h"
#include "backends/cpu/q8_neon.h"
#include "backends/cpu/q8_tiles_neon.h"

namespace moeflux::cpu {
namespace {

struct DotProduct {
  static constexpr int kRowBlocks = 4, kTokens = 4;

  template <bool Full, int Steps>
  static void add(int32x4_t& sums, const int8x16_t (&w)[Steps],
                  const int8x16_t (&x)[Steps]) noexcept {
#pragma GCC unroll 4
    for (int i = 0; i < Steps; ++i) sums = vdotq_s32(sums, w[i], x[i]);
  }
  static void add_codes(int32x4_t& sums, int8x16_t x) noexcept {
    sums = vdotq_s32(sums, x, vdupq_n_s8(1));
  }

  using Quads = int32x4_t;
  template <bool Full>
  static void add_quads(Quads& quads, const int8x16_t (&w)[4], int8x16_t x) noexcept {
    quads = vdotq_laneq_s32(quads, w[0], x, 0);
    quads = vdotq_laneq_s32(quads, w[1], x, 1);
    quads = vdotq_laneq_s32(quads, w[2], x, 2);
    quads = vdotq_laneq_s32(quads, w[3], x, 3);
  }
  static void times_256(Quads& quads) noexcept {
    quads = vshlq_n_s32(quads, 8);
  }
  static int32x4_t total(Quads quads) noexcept {
    return quads;
  }
};

}  // namespace

const Q8Kernels& q8_neon_dotprod() {
  static constexpr Q8Kernels kKernels{.quantize = q8_quantize_neon, .matmul = matmul<DotProduct>};
  return kKernels;
}

}  // namespace moeflux::cpu

#endif
