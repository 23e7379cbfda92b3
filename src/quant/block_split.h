// Parts of the codec of blocks that several files share. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/block_codec.h"
#include "quant/codec.h"

namespace moeflux::blocks {

inline std::uint16_t word_at(const std::byte* at) noexcept {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}
inline std::uint32_t dword_at(const std::byte* at) noexcept {
  std::uint32_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}
inline float half_at(const std::byte* at) noexcept {
  return f16_to_float(word_at(at));
}
inline int byte_at(const std::byte* at) noexcept {
  return std::to_integer<int>(*at);
}
inline std::int8_t small(int value) noexcept {
  return static_cast<std::int8_t>(value);
}

// Formats that look their values up in grids (quant/block_grids.h).
void split_iq1_s(const std::byte* block, BlockParts& out) noexcept;
void split_iq1_m(const std::byte* block, BlockParts& out) noexcept;
void split_iq2_xxs(const std::byte* block, BlockParts& out) noexcept;
void split_iq2_xs(const std::byte* block, BlockParts& out) noexcept;
void split_iq2_s(const std::byte* block, BlockParts& out) noexcept;
void split_iq3_xxs(const std::byte* block, BlockParts& out) noexcept;
void split_iq3_s(const std::byte* block, BlockParts& out) noexcept;

}  // namespace moeflux::blocks
