// The fast path for AVX-512 with VNNI; reached only through the table.
#if defined(__x86_64__)

#include "backends/cpu/kernels.h"
#include "backends/cpu/rounded_tiles_avx512.h"

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
using VnniTile = TileOf<VnniDot, Wide, Digits>;

void matmul(const RoundedMatmul& op) noexcept {
  op.n <= kFew ? few_rows<VnniDot>(op) : many_rows<VnniTile>(op);
}

}  // namespace

const RoundedKernels& rounded_avx512vnni() {
  static constexpr RoundedKernels kKernels{.quantize = rounded_quantize_avx512, .matmul = matmul};
  return kKernels;
}

const KernelTable& avx512vnni_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx512_kernels();
    table.name = "avx512vnni";
    table.rounded = &rounded_avx512vnni();
    return table;
  }();
  return kTable;
}

}  // namespace moeflux::cpu

#endif
