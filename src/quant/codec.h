// The scalar decoder of every weight format: the reference that faster kernels are checked
// against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "quant/weight_format.h"

namespace moeflux {

float bf16_to_float(std::uint16_t bits) noexcept;
float f16_to_float(std::uint16_t bits) noexcept;
float e8m0_to_float(std::uint8_t bits) noexcept;    // 2^(bits - 127); 0xFF is NaN
float e2m1_to_float(std::uint8_t code) noexcept;    // of the lower 4 bits
float f8e4m3_to_float(std::uint8_t bits) noexcept;  // E4M3FN: no infinity, 0x7F and 0xFF are NaN

// `count` numbers of a plain float type (F32, F16, BF16, F8E4M3) from unaligned memory.
void decode_floats(DType dtype, const std::byte* data, std::int64_t count, float* out) noexcept;

// Row `row` of the matrix as floats: out[cols].
void decode_row(const WeightView& matrix, std::int64_t row, float* out) noexcept;

}  // namespace moeflux
