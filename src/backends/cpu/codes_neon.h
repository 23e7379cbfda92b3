// Packed codes of affine weights as bytes, for 64-bit Arm. Included only by files of kernels;
// everything has internal linkage, so that each file compiles it for its own processors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <arm_neon.h>

namespace moeflux::cpu {
namespace {

template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void store(std::byte* at, T value) noexcept {
  std::memcpy(at, &value, sizeof value);
}

// How 16 codes of 3, 5 or 6 bits come to 16-bit lanes: the two bytes that hold a code, and how far
// it lies from their lowest bit.
template <int Bits>
struct CodePlaces {
  alignas(16) std::uint8_t bytes[2][16];
  alignas(16) std::int16_t shifts[2][8];

  constexpr CodePlaces() : bytes(), shifts() {
    for (int i = 0; i < 16; ++i) {
      const int byte = i * Bits / 8;
      bytes[i / 8][i % 8 * 2] = static_cast<std::uint8_t>(byte);
      bytes[i / 8][i % 8 * 2 + 1] = static_cast<std::uint8_t>(byte + 1);
      shifts[i / 8][i % 8] = static_cast<std::int16_t>(-(i * Bits % 8));
    }
  }
};

// The 2 * Bits bytes of 16 codes of 3, 5 or 6 bits, and not a byte more.
template <int Bits>
uint8x16_t load_packed(const std::byte* at) noexcept {
  if constexpr (Bits == 3) {
    const uint32x4_t four = vsetq_lane_u32(load<std::uint32_t>(at), vdupq_n_u32(0), 0);
    return vreinterpretq_u8_u16(
        vsetq_lane_u16(load<std::uint16_t>(at + 4), vreinterpretq_u16_u32(four), 2));
  } else if constexpr (Bits == 5) {
    const uint16x8_t eight = vcombine_u16(load<uint16x4_t>(at), vdup_n_u16(0));
    return vreinterpretq_u8_u16(vsetq_lane_u16(load<std::uint16_t>(at + 8), eight, 4));
  } else {
    const uint32x4_t eight = vcombine_u32(load<uint32x2_t>(at), vdup_n_u32(0));
    return vreinterpretq_u8_u32(vsetq_lane_u32(load<std::uint32_t>(at + 8), eight, 2));
  }
}

// 16 codes from 2 * Bits bytes.
template <int Bits>
uint8x16_t load_16_codes(const std::byte* at) noexcept {
  if constexpr (Bits == 8) {
    return load<uint8x16_t>(at);
  } else if constexpr (Bits == 4) {
    const uint8x16_t packed = vcombine_u8(load<uint8x8_t>(at), vdup_n_u8(0));
    return vzip1q_u8(vandq_u8(packed, vdupq_n_u8(15)), vshrq_n_u8(packed, 4));
  } else if constexpr (Bits == 2) {
    alignas(16) static constexpr std::uint8_t kBytes[16] = {0, 0, 0, 0, 1, 1, 1, 1,
                                                            2, 2, 2, 2, 3, 3, 3, 3};
    const uint8x16_t packed = vreinterpretq_u8_u32(vdupq_n_u32(load<std::uint32_t>(at)));
    const int8x16_t shifts =
        vreinterpretq_s8_u32(vdupq_n_u32(0xFAFCFE00u));  // 0, -2, -4, -6, and so on
    return vandq_u8(vshlq_u8(vqtbl1q_u8(packed, vld1q_u8(kBytes)), shifts), vdupq_n_u8(3));
  } else {
    static constexpr CodePlaces<Bits> kPlaces;
    const uint8x16_t packed = load_packed<Bits>(at);
    const auto eight = [&](int half) {
      const uint8x16_t bytes = vqtbl1q_u8(packed, vld1q_u8(kPlaces.bytes[half]));
      return vreinterpretq_u8_u16(
          vshlq_u16(vreinterpretq_u16_u8(bytes), vld1q_s16(kPlaces.shifts[half])));
    };
    return vandq_u8(vuzp1q_u8(eight(0), eight(1)), vdupq_n_u8((1 << Bits) - 1));
  }
}

}  // namespace
}  // namespace moeflux::cpu
