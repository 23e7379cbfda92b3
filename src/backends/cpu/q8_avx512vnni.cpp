// The fast path for AVX-512 with VNNI; reached only through the table.
#if defined(__x86_64__)

#include "backends/cpu/kernels.h"
#include "backends/cpu/q8_panels_avx512.h"

namespace moeflux::cpu {
namespace {

struct VnniDot {
  // Adds sums of 4 products to each lane.
  template <bool Wide>
  static __m512i add(__m512i acc, __m512i w, __m512i x) noexcept {
    return _mm512_dpbusd_epi32(acc, w, x);
  }
};

template <bool Wide, int Digits>
using VnniPanel = PanelOf<VnniDot, Wide, Digits>;

void matmul(const Q8Matmul& op) noexcept {
  op.n <= kFew ? few_rows<VnniDot>(op) : many_rows<VnniPanel>(op);
}

}  // namespace

const Q8Kernels& q8_avx512vnni() {
  static constexpr Q8Kernels kKernels{.quantize = q8_quantize_avx512, .matmul = matmul};
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
