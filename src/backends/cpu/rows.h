// Stored rows as floats, and their products with one row of activations, for each instruction set:
// what its KernelTable holds as decode_row and matvec.
#pragma once

#include <cstdint>

#include "quant/weight_format.h"

namespace moeflux::cpu {

#if defined(__x86_64__)
void decode_row_avx2(const WeightView& m, std::int64_t row, float* out) noexcept;
void matvec_avx2(const WeightView& m, std::int64_t row, std::int64_t n_rows, const float* x,
                 float* y, float* scratch) noexcept;
void decode_row_avx512(const WeightView& m, std::int64_t row, float* out) noexcept;
void matvec_avx512(const WeightView& m, std::int64_t row, std::int64_t n_rows, const float* x,
                   float* y, float* scratch) noexcept;
#elif defined(__aarch64__)
void decode_row_neon(const WeightView& m, std::int64_t row, float* out) noexcept;
void matvec_neon(const WeightView& m, std::int64_t row, std::int64_t n_rows, const float* x,
                 float* y, float* scratch) noexcept;
#endif

}  // namespace moeflux::cpu
