// The inner loops of the CPU backend behind a table, so that each instruction set can bring its
// own. The scalar table is the reference, and the others compute the same bits: sums run over 16
// lanes and end in a fixed tree, products are rounded before they are added. So an exact result is
// the same on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "backends/cpu/rounded.h"
#include "quant/weight_format.h"

namespace moeflux::cpu {

struct AttentionKernels;
struct ConvRow;
struct DeltaStep;
struct Matvec;
struct RowDots;

struct KernelTable {
  const char* name;

  // Row `row` of a matrix as floats: out[cols].
  void (*decode_row)(const WeightView& matrix, std::int64_t row, float* out) noexcept;
  float (*dot)(const float* a, const float* b, std::int64_t n) noexcept;
  void (*row_dots)(const RowDots& op) noexcept;                                  // many dots
  void (*axpy)(float scale, const float* x, float* y, std::int64_t n) noexcept;  // y += scale * x
  void (*matvec)(const Matvec& op) noexcept;  // rows of a matrix with few others
  void (*delta_step)(const DeltaStep& step) noexcept;
  void (*sigmoid_row)(const float* x, float* y, std::int64_t n) noexcept;  // y = 1 / (1 + exp(-x))
  void (*silu_row)(const float* x, float* y, std::int64_t n) noexcept;     // y = x / (1 + exp(-x))
  void (*conv_row)(const ConvRow& op) noexcept;
  const AttentionKernels* attention;
  // The fast path. It too computes the same bits everywhere, but not those of the functions above.
  const RoundedKernels* rounded;
};

// The tables this processor can run, from the plainest to the best.
std::span<const KernelTable* const> supported_kernels();

// The best table this processor supports, or the one named. Throws Error for a name that is unknown
// or unsupported.
const KernelTable& select_kernels(std::string_view name);

const KernelTable& scalar_kernels();
#if defined(__x86_64__)
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
const KernelTable& avx512vnni_kernels();
const KernelTable& amx_kernels();
#elif defined(__aarch64__)
const KernelTable& neon_kernels();
const KernelTable& neon_dotprod_kernels();
#endif

}  // namespace moeflux::cpu
