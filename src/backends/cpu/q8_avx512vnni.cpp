// The fast path for AVX-512 with VNNI; reached only through the table.
#if defined(__x86_64__)

#include "backends/cpu/kernels.h"
#include "backends/cpu/q8_panels_avx512.h"

namespace moeflux::cpu {
namespace {

struct VnniDot {
  // Adds sums of 4 products, with the dword at x, to each lane. Compilers take the dword through
  // other registers, which costs a third of the speed.
  template <bool Wide>
  static __m512i add(__m512i acc, __m512i w, const std::byte* x) noexcept {
    using Dword = int __attribute__((may_alias, aligned(1)));
    asm("vpdpbusd %2%{1to16%}, %1, %0"
        : "+v"(acc)
        : "v"(w), "m"(*static_cast<const Dword*>(static_cast<const void*>(x))));
    return acc;
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
