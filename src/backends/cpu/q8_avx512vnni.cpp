// The fast path for AVX-512 with VNNI; reached only through the table.
#if defined(__x86_64__)

#include "backends/cpu/kernels.h"
#include "backends/cpu/q8_avx512.h"

namespace moeflux::cpu {
namespace {

struct VnniDot {
  template <int Steps>
  static __m512i lane_sums(const __m512i (&w)[Steps], const __m512i (&x)[Steps]) noexcept {
    __m512i sum = _mm512_setzero_si512();
    for (int i = 0; i < Steps; ++i) sum = _mm512_dpbusd_epi32(sum, w[i], x[i]);
    return sum;
  }
};

}  // namespace

const Q8Kernels& q8_avx512vnni() {
  static constexpr Q8Kernels kKernels{.quantize = q8_quantize_avx512, .matmul = matmul<VnniDot>};
  return kKernels;
}

const KernelTable& avx512vnni_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx512_kernels();
    table.name = "avx512vnni";
    table.q8 = &q8_avx512vnni();
    return table;
  }();
  return kTable;
}

}  // namespace moeflux::cpu

#endif
