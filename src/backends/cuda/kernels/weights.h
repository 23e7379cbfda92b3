// Reading stored weights (operands.h).
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/gpu.h"
#include "backends/cuda/kernels/operands.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// Little-endian numbers at any address.
inline std::uint32_t load_16_bits(const unsigned char* at) {
  if (reinterpret_cast<std::uintptr_t>(at) % 2 == 0)
    return *reinterpret_cast<const std::uint16_t*>(at);
  return at[0] | std::uint32_t{at[1]} << 8;
}
inline std::uint32_t load_32_bits(const unsigned char* at) {
  if (reinterpret_cast<std::uintptr_t>(at) % 4 == 0)
    return *reinterpret_cast<const std::uint32_t*>(at);
  return at[0] | std::uint32_t{at[1]} << 8 | std::uint32_t{at[2]} << 16 |
         std::uint32_t{at[3]} << 24;
}

// At a multiple of 4; quicker at one of 16.
template <int kDwords>
inline void load_dwords(const unsigned char* at, std::uint32_t (&out)[kDwords]) {
  if (kDwords % 4 == 0 && reinterpret_cast<std::uintptr_t>(at) % 16 == 0) {
    const auto* quads = reinterpret_cast<const Quad*>(at);
    GPU_UNROLL
    for (int i = 0; i < kDwords / 4; ++i) {
      const Quad quad = quads[i];
      out[4 * i] = quad.x;
      out[4 * i + 1] = quad.y;
      out[4 * i + 2] = quad.z;
      out[4 * i + 3] = quad.w;
    }
  } else {
    GPU_UNROLL
    for (int i = 0; i < kDwords; ++i) out[i] = reinterpret_cast<const std::uint32_t*>(at)[i];
  }
}

inline float decode_e4m3(std::uint32_t byte) {
  const std::uint32_t sign = (byte & 0x80u) << 24, magnitude = byte & 0x7Fu;
  if (magnitude == 0x7Fu) return float_of(0x7FC00000u);
  return float_of(float_of(magnitude << 20) * 0x1p+120f == 0
                      ? sign
                      : bits_of(float_of(magnitude << 20) * 0x1p+120f) | sign);
}
inline float decode_e8m0(std::uint32_t byte) {
  if (byte == 0xFFu) return float_of(0x7FC00000u);
  return byte == 0 ? 0x1p-127f : float_of(byte << 23);
}
inline float decode_e2m1(std::uint32_t code) {
  const std::uint32_t magnitude = code & 7u;
  const float value = magnitude < 4
                          ? 0.5f * static_cast<float>(magnitude)
                          : (magnitude & 1u ? 1.5f : 1.0f) * (magnitude < 6 ? 2.0f : 4.0f);
  return code & 8u ? -value : value;
}

inline float load_scale(const unsigned char* plane, ScaleType type, std::int64_t index) {
  switch (type) {
    case ScaleType::F32:
      return float_of(load_32_bits(plane + 4 * index));
    case ScaleType::F16:
      return from_half(static_cast<std::uint16_t>(load_16_bits(plane + 2 * index)));
    case ScaleType::BF16:
      return from_bfloat(static_cast<std::uint16_t>(load_16_bits(plane + 2 * index)));
    case ScaleType::E8M0:
      return decode_e8m0(plane[index]);
    case ScaleType::E4M3:
      return decode_e4m3(plane[index]);
  }
  return 0;
}

// A weight is scale * number + offset, where the number is what its code stands for.
struct ScaleAndOffset {
  float scale, offset;
};
inline ScaleAndOffset scale_at(const DeviceWeight& w, int row, int col) {
  switch (w.kind) {
    case Kind::Affine: {
      const std::int64_t index = std::int64_t{row} * w.scales_per_row + col / w.group;
      const float scale = load_scale(w.scales, w.scale_type, index);
      if (w.zero == Zero::Bias) return {scale, load_scale(w.biases, w.scale_type, index)};
      const int zero = w.zero == Zero::MidCode ? 1 << (w.bits - 1) : w.biases[index];
      return {scale, -scale * static_cast<float>(zero)};
    }
    case Kind::Fp8Block: {
      const std::int64_t index =
          std::int64_t{(row + w.block_row0) / w.block_rows} * w.scales_per_row + col / w.group;
      return {load_scale(w.scales, w.scale_type, index), 0};
    }
    case Kind::Fp4: {
      const std::int64_t index = std::int64_t{row} * w.scales_per_row + col / w.group;
      float scale = load_scale(w.scales, w.scale_type, index);
      if (w.has_tensor_scale) {
        const float of_all = float_of(load_32_bits(w.biases));
        scale = w.tensor_scale_divides ? scale / of_all : scale * of_all;
      }
      return {scale, 0};
    }
    default:
      return {1, 0};
  }
}

// The slow way to one number, for any format and place.
inline float number_at(const DeviceWeight& w, int row, int col) {
  const unsigned char* begin = w.data + row * w.row_bytes;
  switch (w.kind) {
    case Kind::F32:
      return float_of(load_32_bits(begin + 4 * std::int64_t{col}));
    case Kind::F16:
      return from_half(static_cast<std::uint16_t>(load_16_bits(begin + 2 * std::int64_t{col})));
    case Kind::BF16:
      return from_bfloat(static_cast<std::uint16_t>(load_16_bits(begin + 2 * std::int64_t{col})));
    case Kind::Fp8Block:
      return decode_e4m3(begin[col]);
    default: {
      const int bit = col * w.bits, shift = bit % 8;
      std::uint32_t code = begin[bit / 8];
      if (shift + w.bits > 8) code |= std::uint32_t{begin[bit / 8 + 1]} << 8;
      code = code >> shift & ((1u << w.bits) - 1);
      return w.kind == Kind::Fp4 ? decode_e2m1(code) : static_cast<float>(code);
    }
  }
}
inline float weight_at(const DeviceWeight& w, int row, int col) {
  const ScaleAndOffset s = scale_at(w, row, col);
  return s.scale * number_at(w, row, col) + s.offset;
}

inline int group_of(const DeviceWeight& w, int col) {  // a division takes many times as long
  if (w.group == 64) return col >> 6;
  if (w.group == 32) return col >> 5;
  return w.group == 128 ? col >> 7 : col / w.group;
}
// Numbers of a chunk, from the dwords they are packed in.
template <Kind kKind, int kBits>
inline float number_of(const std::uint32_t (&dwords)[kBits], int i) {
  if constexpr (kKind == Kind::F32) {
    return float_of(dwords[i]);
  } else if constexpr (kKind == Kind::F16) {
    return from_half(static_cast<std::uint16_t>(dwords[i / 2] >> (16 * (i % 2))));
  } else if constexpr (kKind == Kind::BF16) {
    return i % 2 == 0 ? float_of(dwords[i / 2] << 16) : float_of(dwords[i / 2] & 0xFFFF0000u);
  } else if constexpr (kKind == Kind::Fp8Block) {
    return decode_e4m3(dwords[i / 4] >> (8 * (i % 4)) & 0xFFu);
  } else {
    const int bit = i * kBits, at = bit / 32, shift = bit % 32;
    std::uint32_t code = dwords[at] >> shift;
    if (shift + kBits > 32) code |= dwords[at + 1] << (32 - shift);
    code &= (1u << kBits) - 1;
    if constexpr (kKind == Kind::Fp4) return decode_e2m1(code);
    return static_cast<float>(code);
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
