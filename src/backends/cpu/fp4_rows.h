// What decoders of Fp4 rows have in common on every instruction set: where a row begins, and the
// scales of its groups as floats. Everything has internal linkage: each compiles it for itself.
#pragma once

#include <cstdint>
#include <cstring>

#include "quant/weight_format.h"

namespace moeflux::cpu {
namespace {

class Fp4Row {
 public:
  void open(const WeightView& m, std::int64_t row) noexcept {
    data = m.data + row * (m.cols / 2);
    scales_ = m.scales + row * (m.cols / m.format.group);
    is_e8m0_ = m.format.scale_dtype == DType::U8;
    has_tensor_scale = m.format.has_tensor_scale;
    divides = m.format.tensor_scale_divides;
    if (has_tensor_scale) std::memcpy(&tensor_scale, m.biases, sizeof tensor_scale);
  }
  float scale(std::int64_t group) const noexcept {
    const auto byte = std::to_integer<std::uint32_t>(scales_[group]);
    return is_e8m0_ ? e8m0(byte) : e4m3(byte);
  }

  const std::byte* data;
  float tensor_scale = 1;
  bool has_tensor_scale, divides;

 private:
  static float e8m0(std::uint32_t byte) noexcept {
    if (byte == 0xFF) return __builtin_nanf("");
    return __builtin_bit_cast(float, byte == 0 ? 0x00400000u : byte << 23);
  }
  // Exponent and mantissa go to their places in a float; 2^120 mends the bias of the exponent.
  static float e4m3(std::uint32_t byte) noexcept {
    const std::uint32_t size = byte & 0x7F;
    if (size == 0x7F) return __builtin_nanf("");
    return __builtin_bit_cast(float, (byte & 0x80) << 24 | size << 20) * 0x1p120f;
  }

  const std::byte* scales_;
  bool is_e8m0_;
};

}  // namespace
}  // namespace moeflux::cpu
