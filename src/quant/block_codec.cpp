#include "quant/block_codec.h"

#include <cstring>

#include "quant/codec.h"

namespace moeflux {
namespace {

float half_at(const std::byte* at) noexcept {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return f16_to_float(bits);
}

std::uint32_t dword_at(const std::byte* at) noexcept {
  std::uint32_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

int byte_at(const std::byte* at) noexcept {
  return std::to_integer<int>(*at);
}

// Codes of 4 bits: the lower halves of 16 bytes are elements 0 to 15, the upper ones 16 to 31.
int nibble_of_32(const std::byte* bytes, int i) noexcept {
  return i < 16 ? byte_at(bytes + i) & 15 : byte_at(bytes + i - 16) >> 4;
}

// ---- blocks of 32

void decode_q4_0(const std::byte* block, float* out) noexcept {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(nibble_of_32(block + 2, i) - 8);
}

void decode_q4_1(const std::byte* block, float* out) noexcept {
  const float scale = half_at(block), least = half_at(block + 2);
  for (int i = 0; i < 32; ++i)
    out[i] = scale * static_cast<float>(nibble_of_32(block + 4, i)) + least;
}

// The fifth bits of all codes are a dword of their own.
int code_of_5(std::uint32_t fifth, const std::byte* codes, int i) noexcept {
  return nibble_of_32(codes, i) | static_cast<int>(fifth >> i & 1u) << 4;
}

void decode_q5_0(const std::byte* block, float* out) noexcept {
  const float scale = half_at(block);
  const std::uint32_t fifth = dword_at(block + 2);
  for (int i = 0; i < 32; ++i)
    out[i] = scale * static_cast<float>(code_of_5(fifth, block + 6, i) - 16);
}

void decode_q5_1(const std::byte* block, float* out) noexcept {
  const float scale = half_at(block), least = half_at(block + 2);
  const std::uint32_t fifth = dword_at(block + 4);
  for (int i = 0; i < 32; ++i)
    out[i] = scale * static_cast<float>(code_of_5(fifth, block + 8, i)) + least;
}

void decode_q8_0(const std::byte* block, float* out) noexcept {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i)
    out[i] = scale * static_cast<float>(static_cast<std::int8_t>(byte_at(block + 2 + i)));
}

// ---- all

using Decode = void (*)(const std::byte* block, float* out) noexcept;

Decode decoder_of(BlockType type) noexcept {
  switch (type) {
    case BlockType::Q4_0:
      return decode_q4_0;
    case BlockType::Q4_1:
      return decode_q4_1;
    case BlockType::Q5_0:
      return decode_q5_0;
    case BlockType::Q5_1:
      return decode_q5_1;
    case BlockType::Q8_0:
      return decode_q8_0;
    default:
      return nullptr;
  }
}

}  // namespace

bool has_block_codec(BlockType type) {
  return decoder_of(type) != nullptr;
}

void decode_blocks(BlockType type, const std::byte* blocks, std::int64_t n_blocks,
                   float* out) noexcept {
  const Decode decode = decoder_of(type);
  const BlockShape shape = block_shape(type);
  for (std::int64_t i = 0; i < n_blocks; ++i)
    decode(blocks + i * shape.bytes, out + i * shape.values);
}

}  // namespace moeflux
