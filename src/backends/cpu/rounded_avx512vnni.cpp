// The fast path for AVX-512 with VNNI; reached only through the table.
#if defined(__x86_64__)

#include "backends/cpu/kernels.h"
#include "backends/cpu/rounded_blocks_avx512.h"

namespace moeflux::cpu {
namespace {

// As Fp4Unit; for processors that choose bytes by 6 bits, whatever the upper ones are: nothing has
// to be cleared before.
struct PermutedFp4 {
  static constexpr int kRegisters = 2;
  static constexpr int kBytes = 64;

  static void load(const std::byte* from, __m512i (&out)[kRegisters]) noexcept {
    const __m512i numbers = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m512i codes = _mm512_loadu_si512(at(from, 0));
    out[0] = chosen(numbers, codes);
    out[1] = chosen(numbers, _mm512_srli_epi16(codes, 4));
  }

 private:
  // Written by hand, since other processors run this file too.
  static __m512i chosen(__m512i bytes, __m512i index) noexcept {
    __m512i out;
    asm("vpermb %1, %2, %0" : "=v"(out) : "v"(bytes), "v"(index));
    return out;
  }
};

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

  // With the dword at At of one of four rows; nothing writes to them while kernels run. Compilers
  // would keep an address for each row, more than there are registers.
  template <bool, int Row, int At>
  static __m512i add_at(__m512i acc, __m512i w, const FourRows& rows) noexcept {
    if constexpr (Row == 0) {
      asm("vpdpbusd %c3(%2)%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "r"(rows.x), "i"(At));
    } else if constexpr (Row == 3) {
      asm("vpdpbusd %c4(%2,%3)%{1to16%}, %1, %0"
          : "+v"(acc)
          : "v"(w), "r"(rows.x), "r"(rows.three_strides), "i"(At));
    } else {
      asm("vpdpbusd %c5(%2,%3,%c4)%{1to16%}, %1, %0"
          : "+v"(acc)
          : "v"(w), "r"(rows.x), "r"(rows.stride), "i"(Row), "i"(At));
    }
    return acc;
  }
  template <int Row>
  static __m512i start_at(const FourRows& rows) noexcept {
    __m512i out;
    if constexpr (Row == 0) {
      asm("vpbroadcastd (%1), %0" : "=v"(out) : "r"(rows.x));
    } else if constexpr (Row == 3) {
      asm("vpbroadcastd (%1,%2), %0" : "=v"(out) : "r"(rows.x), "r"(rows.three_strides));
    } else {
      asm("vpbroadcastd (%1,%2,%c3), %0" : "=v"(out) : "r"(rows.x), "r"(rows.stride), "i"(Row));
    }
    return out;
  }

  using PermutedFp4Unit = PermutedFp4;
  static bool has_permute() noexcept { return rounded_may_permute(); }
  static constexpr bool kTellsWide = false;  // all products fit
};

void matmul(const RoundedMatmul& op) noexcept {
  if (op.weight->format.kind == WeightKind::Block) return block_products<VnniDot>(op);
  op.n <= kFew ? few_rows<VnniDot>(op) : many_rows<VnniDot>(op);
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
