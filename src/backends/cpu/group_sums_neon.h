// Sums of products of codes for 64-bit Arm, whatever the codes and the inner products are (see
// rounded_neon.h). Everything has internal linkage.
#pragma once

#include "backends/cpu/codes_neon.h"
#include "backends/cpu/rounded_passes.h"

namespace moeflux::cpu {
namespace {

constexpr int kBlock = 16;  // bytes of a register: a dword of each of 4 rows

// Products of codes of one group, of some blocks with N rows of activations.
template <class Dot, class Codes, int Digits, int N, int Blocks>
struct GroupSums {
  typename Dot::Sums sums[Digits][Blocks][N] = {};

  // The first or second half of a piece.
  void add(const RoundedLayout& layout, const std::byte* piece, int half,
           const std::byte* x) noexcept {
#pragma GCC unroll 4
    for (int b = 0; b < Blocks; ++b) {
      int8x16_t codes[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) codes[j] = Codes::four(piece + b * kBlock, 4 * half + j);
#pragma GCC unroll 8
      for (int k = 0; k < Digits * N; ++k) {
        const auto digits =
            load<int8x16_t>(x + 16 * half + k / N * layout.low_at + k % N * layout.row_bytes);
        Dot::template add<Codes::kFull>(sums[k / N][b][k % N], codes, digits);
      }
    }
  }
  int32x4_t total(int block, int i) const noexcept {
    const int32x4_t last = Dot::total(sums[Digits - 1][block][i]);
    return Digits == 1 ? last : vaddq_s32(vshlq_n_s32(Dot::total(sums[0][block][i]), 8), last);
  }
};

}  // namespace
}  // namespace moeflux::cpu
