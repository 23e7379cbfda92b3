#include "quant/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/interleave.h"

namespace moeflux {
namespace {

template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float decode_one(DType dtype, const std::byte* at) noexcept {
  switch (dtype) {
    case DType::F32:
      return load<float>(at);
    case DType::F16:
      return f16_to_float(load<std::uint16_t>(at));
    case DType::BF16:
      return bf16_to_float(load<std::uint16_t>(at));
    case DType::F8E4M3:
      return f8e4m3_to_float(load<std::uint8_t>(at));
    default:
      return std::numeric_limits<float>::quiet_NaN();
  }
}

// 8 codes of `bits` bits are exactly `bits` bytes, so every group of 8 starts on a byte.
void unpack_8_codes(const std::byte* at, int bits, std::array<float, 8>& codes) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, at, static_cast<std::size_t>(bits));
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  for (float& code : codes) {
    code = static_cast<float>(word & mask);
    word >>= bits;
  }
}

// Where the codes, scales and biases of one row lie: `step` elements apart.
struct AffineRow {
  AffineRow(const WeightView& m, std::int64_t row) {
    const WeightFormat& f = m.format;
    const auto scale_size = static_cast<std::int64_t>(dtype_size(f.scale_dtype));
    const std::int64_t row_bytes = data_row_bytes(f, m.cols);
    const std::int64_t row_scales = m.cols / f.group * scale_size;
    const std::int64_t first = f.is_interleaved ? row / kTileRows * kTileRows : row;
    step = f.is_interleaved ? std::min(kTileRows, m.rows - first) : 1;
    data = m.data + first * row_bytes + (row - first) * 4;
    scales = m.scales + first * row_scales + (row - first) * scale_size;
    biases = m.biases + first * row_scales + (row - first) * scale_size;
  }
  const std::byte *data, *scales, *biases;
  std::int64_t step;
};

void decode_affine_row(const WeightView& m, std::int64_t row, float* out) noexcept {
  const WeightFormat& f = m.format;
  const auto scale_size = static_cast<std::int64_t>(dtype_size(f.scale_dtype));
  const AffineRow r(m, row);
  const std::byte* data = r.data;
  std::array<std::byte, 32> some;  // 32 codes are `bits` dwords
  std::array<float, 8> codes;
  for (std::int64_t g = 0; g < m.cols / f.group; ++g) {
    const float scale = decode_one(f.scale_dtype, r.scales + g * r.step * scale_size);
    const float bias = decode_one(f.scale_dtype, r.biases + g * r.step * scale_size);
    for (int i = 0; i < f.group; i += 32) {
      for (int d = 0; d < f.bits; ++d, data += 4 * r.step)
        std::memcpy(&some[static_cast<std::size_t>(4 * d)], data, 4);
      for (int k = 0; k < 4; ++k) {
        unpack_8_codes(&some[static_cast<std::size_t>(f.bits * k)], f.bits, codes);
        for (const float code : codes) *out++ = scale * code + bias;
      }
    }
  }
}

void decode_fp8_row(const WeightView& m, std::int64_t row, float* out) noexcept {
  const WeightFormat& f = m.format;
  const auto scale_size = static_cast<std::int64_t>(dtype_size(f.scale_dtype));
  const std::byte* data = m.data + row * m.cols;
  const std::byte* scales =
      m.scales + (m.block_row0 + row) / f.block * scales_per_row(f, m.cols) * scale_size;
  for (std::int64_t c = 0; c < m.cols; ++c) {
    const float scale = decode_one(f.scale_dtype, scales + c / f.block * scale_size);
    out[c] = f8e4m3_to_float(std::to_integer<std::uint8_t>(data[c])) * scale;
  }
}

}  // namespace

float bf16_to_float(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

float f16_to_float(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  const std::uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float
    return std::bit_cast<float>(
        sign | std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24f));
  }
  const std::uint32_t wide = exponent == 31 ? 0xFFu : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

float f8e4m3_to_float(std::uint8_t bits) noexcept {
  const int exponent = (bits >> 3) & 15;
  const int mantissa = bits & 7;
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  if (exponent == 15 && mantissa == 7)
    return std::copysign(std::numeric_limits<float>::quiet_NaN(), sign);
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-9f;
  return sign * std::ldexp(1.0f + static_cast<float>(mantissa) / 8, exponent - 7);
}

void decode_floats(DType dtype, const std::byte* data, std::int64_t count, float* out) noexcept {
  const auto size = static_cast<std::int64_t>(dtype_size(dtype));
  for (std::int64_t i = 0; i < count; ++i) out[i] = decode_one(dtype, data + i * size);
}

void decode_row(const WeightView& m, std::int64_t row, float* out) noexcept {
  switch (m.format.kind) {
    case WeightKind::F32:
      return decode_floats(DType::F32, m.data + row * m.cols * 4, m.cols, out);
    case WeightKind::F16:
      return decode_floats(DType::F16, m.data + row * m.cols * 2, m.cols, out);
    case WeightKind::BF16:
      return decode_floats(DType::BF16, m.data + row * m.cols * 2, m.cols, out);
    case WeightKind::Affine:
      return decode_affine_row(m, row, out);
    case WeightKind::Fp8Block:
      return decode_fp8_row(m, row, out);
  }
}

}  // namespace moeflux
