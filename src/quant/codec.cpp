#include "quant/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/block_codec.h"
#include "quant/block_tile.h"
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
    case DType::U8:  // the one float type that checkpoints call so
      return e8m0_to_float(load<std::uint8_t>(at));
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

// Where the codes, scales and biases of one row of groups lie: `step` elements apart.
struct GroupedRow {
  GroupedRow(const WeightView& m, std::int64_t row) {
    const WeightFormat& f = m.format;
    const std::int64_t n_groups = m.cols / f.group;
    const std::int64_t first = f.is_interleaved ? row / kTileRows * kTileRows : row;
    step = f.is_interleaved ? std::min(kTileRows, m.rows - first) : 1;
    scale_size = static_cast<std::int64_t>(dtype_size(f.scale_dtype));
    bias_size = f.zero == AffineZero::ZeroPoint ? 1 : scale_size;
    data = m.data + first * data_row_bytes(f, m.cols) + (row - first) * 4;
    scales = m.scales + (first * n_groups + row - first) * scale_size;
    if (f.kind == WeightKind::Affine && has_biases(f))
      biases = m.biases + (first * n_groups + row - first) * bias_size;
  }
  const std::byte* scale(std::int64_t g) const { return scales + g * step * scale_size; }
  const std::byte* bias(std::int64_t g) const { return biases + g * step * bias_size; }

  const std::byte *data, *scales, *biases = nullptr;
  std::int64_t step, scale_size, bias_size;
};

// Code c of a row.
std::uint32_t code_at(const WeightFormat& f, const GroupedRow& row, std::int64_t c) noexcept {
  const std::int64_t bit = c * f.bits;
  const auto shift = static_cast<int>(bit % 32);
  std::uint64_t word = load<std::uint32_t>(row.data + bit / 32 * row.step * 4);
  if (shift + f.bits > 32)
    word |= std::uint64_t{load<std::uint32_t>(row.data + (bit / 32 + 1) * row.step * 4)} << 32;
  return static_cast<std::uint32_t>(word >> shift) & ((1u << f.bits) - 1);
}

// The code that stands for zero, where there is one.
float zero_code(const WeightFormat& f, const GroupedRow& row, std::int64_t g) noexcept {
  return f.zero == AffineZero::MidCode
             ? static_cast<float>(1 << (f.bits - 1))
             : static_cast<float>(std::to_integer<std::uint8_t>(*row.bias(g)));
}

// Groups of any size.
void decode_odd_row(const WeightView& m, const GroupedRow& r, float* out) noexcept {
  const WeightFormat& f = m.format;
  const bool has_bias = f.zero == AffineZero::Bias;
  for (std::int64_t c = 0; c < m.cols; ++c) {
    const std::int64_t g = c / f.group;
    const float scale = decode_one(f.scale_dtype, r.scale(g));
    const auto code = static_cast<float>(code_at(f, r, c));
    out[c] = has_bias ? scale * code + decode_one(f.scale_dtype, r.bias(g))
                      : scale * (code - zero_code(f, r, g));
  }
}

void decode_affine_row(const WeightView& m, std::int64_t row, float* out) noexcept {
  const WeightFormat& f = m.format;
  const GroupedRow r(m, row);
  if (f.group % 32 != 0) return decode_odd_row(m, r, out);
  const std::byte* data = r.data;
  std::array<std::byte, 32> some;  // 32 codes are `bits` dwords
  std::array<float, 8> codes;
  for (std::int64_t g = 0; g < m.cols / f.group; ++g) {
    const float scale = decode_one(f.scale_dtype, r.scale(g));
    const bool has_bias = f.zero == AffineZero::Bias;
    const float bias = has_bias ? decode_one(f.scale_dtype, r.bias(g)) : 0;
    const float zero = has_bias ? 0 : zero_code(f, r, g);
    for (int i = 0; i < f.group; i += 32) {
      for (int d = 0; d < f.bits; ++d, data += 4 * r.step)
        std::memcpy(&some[static_cast<std::size_t>(4 * d)], data, 4);
      for (int k = 0; k < 4; ++k) {
        unpack_8_codes(&some[static_cast<std::size_t>(f.bits * k)], f.bits, codes);
        for (const float code : codes)
          *out++ = has_bias ? scale * code + bias : scale * (code - zero);
      }
    }
  }
}

void decode_fp4_row(const WeightView& m, std::int64_t row, float* out) noexcept {
  const WeightFormat& f = m.format;
  const GroupedRow r(m, row);
  const float tensor_scale = f.has_tensor_scale ? load<float>(m.biases) : 1.0f;
  for (std::int64_t c = 0; c < m.cols; c += 8) {  // a dword
    const float scale = decode_one(f.scale_dtype, r.scale(c / f.group));
    auto word = load<std::uint32_t>(r.data + c / 8 * r.step * 4);
    for (int k = 0; k < 8; ++k, word >>= 4) {
      const float value = e2m1_to_float(static_cast<std::uint8_t>(word & 15)) * scale;
      *out++ = f.tensor_scale_divides ? value / tensor_scale : value * tensor_scale;
    }
  }
}

// Of an interleaved tile, the blocks of all its rows are put together.
void decode_block_row(const WeightView& m, std::int64_t row, float* out) noexcept {
  const BlockType type = m.format.blocks;
  const BlockShape shape = block_shape(type);
  const std::int64_t row_bytes = data_row_bytes(m.format, m.cols), n_blocks = m.cols / shape.values;
  if (!m.format.is_interleaved) return decode_blocks(type, m.data + row * row_bytes, n_blocks, out);
  std::array<std::byte, kTileRows * kMostBlockBytes> blocks;
  const std::int64_t first = row / kTileRows * kTileRows;
  for (std::int64_t b = 0; b < n_blocks; ++b) {
    take_blocks(type, m.data + first * row_bytes, std::min(kTileRows, m.rows - first), m.cols, b,
                blocks.data());
    decode_blocks(type, blocks.data() + (row - first) * shape.bytes, 1, out + b * shape.values);
  }
}

void decode_fp8_row(const WeightView& m, std::int64_t row, float* out) noexcept {
  const WeightFormat& f = m.format;
  const auto scale_size = static_cast<std::int64_t>(dtype_size(f.scale_dtype));
  const std::byte* data = m.data + row * m.cols;
  const std::byte* scales =
      m.scales + (m.block_row0 + row) / rows_per_scale(f) * scales_per_row(f, m.cols) * scale_size;
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

float e8m0_to_float(std::uint8_t bits) noexcept {
  if (bits == 0xFF) return std::numeric_limits<float>::quiet_NaN();
  return bits == 0 ? 0x1p-127f : std::bit_cast<float>(std::uint32_t{bits} << 23);
}

float e2m1_to_float(std::uint8_t code) noexcept {
  constexpr std::array<float, 16> kValues{0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                          -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  return kValues[code & 15];
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
    case WeightKind::Fp4:
      return decode_fp4_row(m, row, out);
    case WeightKind::Block:
      return decode_block_row(m, row, out);
  }
}

}  // namespace moeflux
