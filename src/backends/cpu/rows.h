// Stored rows as floats, and their products with few rows of activations, for each instruction set:
// what its KernelTable holds as decode_row and matvec.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels.h"
#include "quant/weight_format.h"

namespace moeflux::cpu {

// y[i * y_stride + r] = dot(row `row + r` of the matrix, x + i * x_stride)
struct Matvec {
  const WeightView* matrix;
  std::int64_t row, n_rows;
  const float* x;  // [n, cols]
  std::int64_t x_stride, n;
  float* y;  // [n, n_rows]
  std::int64_t y_stride;
  float* scratch;  // [cols]
};

#if defined(__x86_64__)
void decode_row_avx2(const WeightView& m, std::int64_t row, float* out) noexcept;
void matvec_avx2(const Matvec& op) noexcept;
void decode_row_avx512(const WeightView& m, std::int64_t row, float* out) noexcept;
void matvec_avx512(const Matvec& op) noexcept;
#elif defined(__aarch64__)
void decode_row_neon(const WeightView& m, std::int64_t row, float* out) noexcept;
void matvec_neon(const Matvec& op) noexcept;
#endif

namespace {

// Row after row, from `first` on, as a table decodes and multiplies.
[[maybe_unused]] void matvec_by_rows(const KernelTable& table, const Matvec& op,
                                     std::int64_t first = 0) noexcept {
  for (std::int64_t r = first; r < op.n_rows; ++r) {
    table.decode_row(*op.matrix, op.row + r, op.scratch);
    for (std::int64_t i = 0; i < op.n; ++i) {
      op.y[i * op.y_stride + r] = table.dot(op.scratch, op.x + i * op.x_stride, op.matrix->cols);
    }
  }
}

}  // namespace
}  // namespace moeflux::cpu
