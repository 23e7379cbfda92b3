#include "quant/block_codec.h"

#include <bit>

#include "quant/block_split.h"

namespace moeflux {
namespace blocks {
namespace {

// ---- fields of bytes, which compilers take many at a time

using Integers = std::int8_t*;

// Codes of `bits` bits that begin at bit `shift` of n bytes, less `middle`.
template <std::size_t N>
void put_fields(const std::byte* bytes, int shift, int bits, Integers out,
                int middle = 0) noexcept {
  const auto mask = static_cast<std::uint8_t>((1 << bits) - 1);
  for (std::size_t i = 0; i < N; ++i) {
    const auto field = static_cast<std::uint8_t>(std::to_integer<std::uint8_t>(bytes[i]) >> shift);
    out[i] = static_cast<std::int8_t>((field & mask) - middle);
  }
}

// The lower halves of n bytes are n codes, the upper ones the next n.
template <std::size_t N>
void put_nibbles(const std::byte* bytes, Integers out, int middle = 0) noexcept {
  put_fields<N>(bytes, 0, 4, out, middle);
  put_fields<N>(bytes, 4, 4, out + N, middle);
}

// Adds bit `shift` of 32 bytes, times `worth`.
void add_bits(const std::byte* bytes, int shift, int worth, Integers out) noexcept {
  for (std::size_t i = 0; i < 32; ++i) {
    const auto bit =
        static_cast<std::uint8_t>(std::to_integer<std::uint8_t>(bytes[i]) >> shift & 1);
    out[i] = static_cast<std::int8_t>(out[i] + bit * worth);
  }
}

// Codes of 2 bits: byte l of 32 has the elements l, 32 + l, 64 + l and 96 + l of 128.
void put_pairs(const std::byte* bytes, Integers out, int middle = 0) noexcept {
  for (std::size_t half = 0; half < 2; ++half) {
    for (std::size_t k = 0; k < 4; ++k)
      put_fields<32>(bytes + 32 * half, static_cast<int>(2 * k), 2, out + 128 * half + 32 * k,
                     middle);
  }
}

// ---- blocks of 32 with a scale, and perhaps a bias

void split_q4_0(const std::byte* block, BlockParts& out) noexcept {
  out.scales[0] = half_at(block);
  put_nibbles<16>(block + 2, out.integers.data(), 8);
}

void split_q4_1(const std::byte* block, BlockParts& out) noexcept {
  out.scales[0] = half_at(block);
  out.biases[0] = half_at(block + 2);
  put_nibbles<16>(block + 4, out.integers.data());
}

// The fifth bits of all codes are a dword of their own.
void add_fifth(std::uint32_t fifth, Integers out) noexcept {
  for (std::size_t i = 0; i < 32; ++i)
    out[i] = small(out[i] + static_cast<int>(fifth >> i & 1) * 16);
}

void split_q5_0(const std::byte* block, BlockParts& out) noexcept {
  out.scales[0] = half_at(block);
  put_nibbles<16>(block + 6, out.integers.data(), 16);
  add_fifth(dword_at(block + 2), out.integers.data());
}

void split_q5_1(const std::byte* block, BlockParts& out) noexcept {
  out.scales[0] = half_at(block);
  out.biases[0] = half_at(block + 2);
  put_nibbles<16>(block + 8, out.integers.data());
  add_fifth(dword_at(block + 4), out.integers.data());
}

void split_q8_0(const std::byte* block, BlockParts& out) noexcept {
  out.scales[0] = half_at(block);
  std::memcpy(out.integers.data(), block + 2, 32);
}

// ---- blocks of 256: two levels of scales

void split_q2_k(const std::byte* block, BlockParts& out) noexcept {
  const float scale = half_at(block + 80), least = half_at(block + 82);
  for (std::size_t g = 0; g < 16; ++g) {
    const int both = byte_at(block + g);
    out.scales[g] = scale * static_cast<float>(both & 15);
    out.biases[g] = -(least * static_cast<float>(both >> 4));
  }
  put_pairs(block + 16, out.integers.data());
}

// A third bit says that 4 is not subtracted. Scales of 6 bits: 4 of them in the nibbles of 8 bytes,
// the upper 2 in the 4 bytes after those.
void split_q3_k(const std::byte* block, BlockParts& out) noexcept {
  const float scale = half_at(block + 108);
  const std::byte* packed = block + 96;
  for (std::size_t g = 0; g < 16; ++g) {
    const int low = byte_at(packed + g % 8) >> g / 8 * 4 & 15;
    const int high = byte_at(packed + 8 + g % 4) >> g / 4 * 2 & 3;
    out.scales[g] = scale * static_cast<float>((low | high << 4) - 32);
  }
  put_pairs(block + 32, out.integers.data(), 4);
  for (std::size_t k = 0; k < 8; ++k)
    add_bits(block, static_cast<int>(k), 4, &out.integers[32 * k]);
}

// Eight scales and eight biases of 6 bits in 12 bytes: the lower 6 bits of the first 4 bytes are
// scales 0 to 3, of the next 4 biases 0 to 3; the rest is in the nibbles of the last 4, with its
// upper 2 bits in those of the first 8.
void split_scales_of_6_bits(const std::byte* block, BlockParts& out) noexcept {
  const float scale = half_at(block), least = half_at(block + 2);
  const auto at = [&](std::size_t i) { return byte_at(block + 4 + i); };
  for (std::size_t g = 0; g < 8; ++g) {
    const int s = g < 4 ? at(g) & 63 : (at(g + 4) & 15) | at(g - 4) >> 6 << 4;
    const int b = g < 4 ? at(g + 4) & 63 : at(g + 4) >> 4 | at(g) >> 6 << 4;
    out.scales[g] = scale * static_cast<float>(s);
    out.biases[g] = -(least * static_cast<float>(b));
  }
}

void split_q4_k(const std::byte* block, BlockParts& out) noexcept {
  split_scales_of_6_bits(block, out);
  for (std::size_t k = 0; k < 4; ++k) put_nibbles<32>(block + 16 + 32 * k, &out.integers[64 * k]);
}

void split_q5_k(const std::byte* block, BlockParts& out) noexcept {
  split_scales_of_6_bits(block, out);
  for (std::size_t k = 0; k < 4; ++k) put_nibbles<32>(block + 48 + 32 * k, &out.integers[64 * k]);
  for (std::size_t k = 0; k < 8; ++k)
    add_bits(block + 16, static_cast<int>(k), 16, &out.integers[32 * k]);
}

// Of 128 elements, the lower halves of 64 bytes are the first 64; the upper 2 bits of all are four
// in a byte.
void split_q6_k(const std::byte* block, BlockParts& out) noexcept {
  const float scale = half_at(block + 208);
  for (std::size_t g = 0; g < 16; ++g)
    out.scales[g] = scale * static_cast<float>(static_cast<std::int8_t>(byte_at(block + 192 + g)));
  alignas(64) std::array<std::int8_t, kMostBlockValues> upper;
  put_pairs(block + 128, upper.data());
  for (std::size_t half = 0; half < 2; ++half)
    put_nibbles<64>(block + 64 * half, &out.integers[128 * half], 32);
  for (std::size_t i = 0; i < upper.size(); ++i)
    out.integers[i] = static_cast<std::int8_t>(out.integers[i] + upper[i] * 16);
}

// ---- values out of a table

constexpr std::array<std::int8_t, 16> kNonLinear{-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};
constexpr std::array<std::int8_t, 16> kTwiceE2m1{0, 1,  2,  3,  4,  6,  8,  12,
                                                 0, -1, -2, -3, -4, -6, -8, -12};

template <std::size_t N>
void put_chosen(const std::byte* bytes, const std::array<std::int8_t, 16>& table,
                Integers out) noexcept {
  for (std::size_t i = 0; i < N; ++i) {
    const auto byte = std::to_integer<std::size_t>(bytes[i]);
    out[i] = table[byte & 15];
    out[N + i] = table[byte >> 4];
  }
}

void split_iq4_nl(const std::byte* block, BlockParts& out) noexcept {
  out.scales[0] = half_at(block);
  put_chosen<16>(block + 2, kNonLinear, out.integers.data());
}

void split_iq4_xs(const std::byte* block, BlockParts& out) noexcept {
  const float scale = half_at(block);
  const int upper = word_at(block + 2);
  for (std::size_t g = 0; g < 8; ++g) {
    const int low = byte_at(block + 4 + g / 2) >> g % 2 * 4 & 15;
    out.scales[g] = scale * static_cast<float>((low | (upper >> 2 * g & 3) << 4) - 32);
    put_chosen<16>(block + 8 + 16 * g, kNonLinear, &out.integers[32 * g]);
  }
}

// A power of two for twice the numbers; that of 0 and 1 is subnormal.
void split_mxfp4(const std::byte* block, BlockParts& out) noexcept {
  const int exponent = byte_at(block);
  const std::uint32_t bits =
      exponent < 2 ? 0x00200000u << exponent : static_cast<std::uint32_t>(exponent - 1) << 23;
  out.scales[0] = std::bit_cast<float>(bits);
  put_chosen<16>(block + 1, kTwiceE2m1, out.integers.data());
}

// Scales are E4M3 without a sign; what would be NaN is 0.
void split_nvfp4(const std::byte* block, BlockParts& out) noexcept {
  for (std::size_t g = 0; g < 4; ++g) {
    const int bits = byte_at(block + g), mantissa = bits & 7, exponent = bits >> 3 & 15;
    const int eighths = exponent == 0 ? mantissa : 8 + mantissa;
    const std::uint32_t power = static_cast<std::uint32_t>(exponent == 0 ? 1 : exponent) + 127 - 11;
    out.scales[g] =
        bits == 0x7F ? 0.0f : static_cast<float>(eighths) * std::bit_cast<float>(power << 23);
    put_chosen<8>(block + 4 + 8 * g, kTwiceE2m1, &out.integers[16 * g]);
  }
}

// ---- -1, 0 and 1

// Five in a byte as digits of base 3, of which the first is the highest: byte * 3^n / 256 ends with
// digit n in front of the point, so three times what is behind it has the next.
int ternary_digit(int byte, std::size_t n) noexcept {
  constexpr int kPowers[5] = {1, 3, 9, 27, 81};
  return (byte * kPowers[n] & 0xFF) * 3 >> 8;
}

void split_tq1_0(const std::byte* block, BlockParts& out) noexcept {
  const float scale = half_at(block + 52);
  for (std::size_t g = 0; g < 8; ++g) out.scales[g] = scale;
  // 32 bytes of five each, 16 of five, 4 of four.
  struct Part {
    std::size_t first, bytes, digits;
  };
  std::int8_t* to = out.integers.data();
  for (const Part& part : {Part{0, 32, 5}, {32, 16, 5}, {48, 4, 4}}) {
    for (std::size_t n = 0; n < part.digits; ++n) {
      for (std::size_t i = 0; i < part.bytes; ++i)
        *to++ = small(ternary_digit(byte_at(block + part.first + i), n) - 1);
    }
  }
}

void split_tq2_0(const std::byte* block, BlockParts& out) noexcept {
  const float scale = half_at(block + 64);
  for (std::size_t g = 0; g < 8; ++g) out.scales[g] = scale;
  put_pairs(block, out.integers.data(), 1);
}

// ---- all

using Split = void (*)(const std::byte* block, BlockParts& out) noexcept;

Split splitter_of(BlockType type) noexcept {
  switch (type) {
    case BlockType::None:
      break;
    case BlockType::Q4_0:
      return split_q4_0;
    case BlockType::Q4_1:
      return split_q4_1;
    case BlockType::Q5_0:
      return split_q5_0;
    case BlockType::Q5_1:
      return split_q5_1;
    case BlockType::Q8_0:
      return split_q8_0;
    case BlockType::Q2_K:
      return split_q2_k;
    case BlockType::Q3_K:
      return split_q3_k;
    case BlockType::Q4_K:
      return split_q4_k;
    case BlockType::Q5_K:
      return split_q5_k;
    case BlockType::Q6_K:
      return split_q6_k;
    case BlockType::IQ1_S:
      return split_iq1_s;
    case BlockType::IQ1_M:
      return split_iq1_m;
    case BlockType::IQ2_XXS:
      return split_iq2_xxs;
    case BlockType::IQ2_XS:
      return split_iq2_xs;
    case BlockType::IQ2_S:
      return split_iq2_s;
    case BlockType::IQ3_XXS:
      return split_iq3_xxs;
    case BlockType::IQ3_S:
      return split_iq3_s;
    case BlockType::IQ4_NL:
      return split_iq4_nl;
    case BlockType::IQ4_XS:
      return split_iq4_xs;
    case BlockType::TQ1_0:
      return split_tq1_0;
    case BlockType::TQ2_0:
      return split_tq2_0;
    case BlockType::MXFP4:
      return split_mxfp4;
    case BlockType::NVFP4:
      return split_nvfp4;
  }
  return nullptr;
}

}  // namespace
}  // namespace blocks

BlockGroups block_groups(BlockType type) {
  switch (type) {
    case BlockType::Q4_1:
    case BlockType::Q5_1:
    case BlockType::Q4_K:
    case BlockType::Q5_K:
      return {.values = 32, .has_biases = true};
    case BlockType::Q2_K:
      return {.values = 16, .has_biases = true};
    case BlockType::Q3_K:
    case BlockType::Q6_K:
    case BlockType::IQ1_M:
    case BlockType::IQ2_XS:
    case BlockType::IQ2_S:
    case BlockType::NVFP4:
      return {.values = 16};
    default:
      return {.values = 32};
  }
}

void split_block(BlockType type, const std::byte* block, BlockParts& out) noexcept {
  blocks::splitter_of(type)(block, out);
}

void decode_blocks(BlockType type, const std::byte* blocks, std::int64_t n_blocks,
                   float* out) noexcept {
  const blocks::Split split = blocks::splitter_of(type);
  const BlockShape shape = block_shape(type);
  const BlockGroups groups = block_groups(type);
  BlockParts parts;
  for (std::int64_t b = 0; b < n_blocks; ++b, out += shape.values) {
    split(blocks + b * shape.bytes, parts);
    for (std::int64_t i = 0, g = 0; i < shape.values; i += groups.values, ++g) {
      const float scale = parts.scales[static_cast<std::size_t>(g)];
      const float bias = groups.has_biases ? parts.biases[static_cast<std::size_t>(g)] : 0;
      for (std::int64_t k = i; k < i + groups.values; ++k) {
        const float product =
            scale * static_cast<float>(parts.integers[static_cast<std::size_t>(k)]);
        out[k] = groups.has_biases ? product + bias : product;
      }
    }
  }
}

}  // namespace moeflux
