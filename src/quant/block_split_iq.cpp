// Blocks of less than 4 bits whose integers are points of a grid, 8 or 4 at a time, with signs or
// shifts of their own.
#include "quant/block_grids.h"
#include "quant/block_split.h"

namespace moeflux::blocks {
namespace {

// A point of 8 numbers with the signs of `minus`, bytes that are 0xFF or 0.
void put_signed(std::uint64_t point, std::uint64_t minus, std::int8_t* out) noexcept {
  for (int i = 0; i < 8; ++i) {
    const int size = static_cast<int>(point >> (8 * i) & 0xFF);
    out[i] = small((minus >> (8 * i) & 1) != 0 ? -size : size);
  }
}

std::uint64_t two_points(std::uint32_t first, std::uint32_t second) noexcept {
  return first | std::uint64_t{second} << 32;
}

// A point of 8 numbers -1, 0 or 1, each an eighth more or less.
void put_shifted(std::uint64_t point, bool less, std::int8_t* out) noexcept {
  for (int i = 0; i < 8; ++i)
    out[i] = small(8 * static_cast<std::int8_t>(point >> (8 * i) & 0xFF) + (less ? -1 : 1));
}

// Two scales of 16 values each: 4 bits each, and a half.
void put_scales(float scale, int both, float* out) noexcept {
  out[0] = scale * (0.5f + static_cast<float>(both & 15)) * 0.25f;
  out[1] = scale * (0.5f + static_cast<float>(both >> 4)) * 0.25f;
}

}  // namespace

// Of each 32 values: 4 points of a byte; 4 times 7 bits of signs and 4 of the scale.
void split_iq2_xxs(const std::byte* block, BlockParts& out) noexcept {
  const float scale = half_at(block);
  for (std::size_t g = 0; g < 8; ++g) {
    const std::byte* at = block + 2 + 8 * g;
    const std::uint32_t rest = dword_at(at + 4);
    out.scales[g] = scale * (0.5f + static_cast<float>(rest >> 28)) * 0.25f;
    for (std::size_t k = 0; k < 4; ++k) {
      put_signed(kGridIq2Xxs[std::to_integer<std::size_t>(at[k])], kEvenSigns[rest >> 7 * k & 127],
                 &out.integers[32 * g + 8 * k]);
    }
  }
}

// Points of 9 bits with 7 of signs, a word each.
void split_iq2_xs(const std::byte* block, BlockParts& out) noexcept {
  const float scale = half_at(block);
  for (std::size_t g = 0; g < 8; ++g) {
    put_scales(scale, byte_at(block + 66 + g), &out.scales[2 * g]);
    for (std::size_t k = 0; k < 4; ++k) {
      const std::uint16_t word = word_at(block + 2 + 8 * g + 2 * k);
      put_signed(kGridIq2Xs[word & 511], kEvenSigns[word >> 9], &out.integers[32 * g + 8 * k]);
    }
  }
}

// Points of 10 bits, of which the upper 2 are in bytes of their own; all signs.
void split_iq2_s(const std::byte* block, BlockParts& out) noexcept {
  const float scale = half_at(block);
  for (std::size_t g = 0; g < 8; ++g) {
    put_scales(scale, byte_at(block + 74 + g), &out.scales[2 * g]);
    const auto upper = std::to_integer<std::size_t>(block[66 + g]);
    for (std::size_t k = 0; k < 4; ++k) {
      const auto point = std::to_integer<std::size_t>(block[2 + 4 * g + k]) | (upper >> 2 * k & 3)
                                                                                  << 8;
      const auto signs = std::to_integer<std::size_t>(block[34 + 4 * g + k]);
      put_signed(kGridIq2S[point], kSigns[signs], &out.integers[32 * g + 8 * k]);
    }
  }
}

// 8 points of 4 numbers for each 32 values; then signs and scales as of IQ2_XXS.
void split_iq3_xxs(const std::byte* block, BlockParts& out) noexcept {
  const float scale = half_at(block);
  for (std::size_t g = 0; g < 8; ++g) {
    const std::byte* at = block + 2 + 8 * g;
    const std::uint32_t rest = dword_at(block + 66 + 4 * g);
    out.scales[g] = scale * (0.5f + static_cast<float>(rest >> 28)) * 0.5f;
    for (std::size_t k = 0; k < 4; ++k) {
      const std::uint64_t point =
          two_points(kGridIq3Xxs[std::to_integer<std::size_t>(at[2 * k])],
                     kGridIq3Xxs[std::to_integer<std::size_t>(at[2 * k + 1])]);
      put_signed(point, kEvenSigns[rest >> 7 * k & 127], &out.integers[32 * g + 8 * k]);
    }
  }
}

// The same with points of 9 bits, all signs, and odd scales of 4 bits.
void split_iq3_s(const std::byte* block, BlockParts& out) noexcept {
  const float scale = half_at(block);
  for (std::size_t g = 0; g < 8; ++g) {
    const int small_scale = byte_at(block + 106 + g / 2) >> 4 * (g % 2) & 15;
    out.scales[g] = scale * static_cast<float>(1 + 2 * small_scale);
    const auto upper = std::to_integer<std::size_t>(block[66 + g]);
    const auto point = [&](std::size_t k) {
      return kGridIq3S[std::to_integer<std::size_t>(block[2 + 8 * g + k]) | (upper >> k & 1) << 8];
    };
    for (std::size_t k = 0; k < 4; ++k) {
      const auto signs = std::to_integer<std::size_t>(block[74 + 4 * g + k]);
      put_signed(two_points(point(2 * k), point(2 * k + 1)), kSigns[signs],
                 &out.integers[32 * g + 8 * k]);
    }
  }
}

// Points of 11 bits, of which the upper 3 are in a word for 32 values; with them an odd scale of 3
// bits, and whether all are an eighth less.
void split_iq1_s(const std::byte* block, BlockParts& out) noexcept {
  const float scale = half_at(block);
  for (std::size_t g = 0; g < 8; ++g) {
    const std::uint16_t word = word_at(block + 34 + 2 * g);
    out.scales[g] = scale * static_cast<float>(2 * (word >> 12 & 7) + 1) * 0.125f;
    for (std::size_t k = 0; k < 4; ++k) {
      const auto point = std::to_integer<std::size_t>(block[2 + 4 * g + k]) |
                         static_cast<std::size_t>(word >> 3 * k & 7) << 8;
      put_shifted(kGridIq1[point], (word & 0x8000) != 0, &out.integers[32 * g + 8 * k]);
    }
  }
}

// The same with a nibble for each point: 3 upper bits, and whether it is an eighth less. Four words
// hold 4 scales of 3 bits each, and in their upper nibbles the scale of all.
void split_iq1_m(const std::byte* block, BlockParts& out) noexcept {
  std::uint16_t words[4];
  std::memcpy(words, block + 48, sizeof words);
  const int bits =
      words[0] >> 12 | (words[1] >> 8 & 0xF0) | (words[2] >> 4 & 0xF00) | (words[3] & 0xF000);
  const float scale = f16_to_float(static_cast<std::uint16_t>(bits));
  for (std::size_t g = 0; g < 16; ++g) {
    const int small_scale = words[g / 4] >> 3 * (g % 4) & 7;
    out.scales[g] = scale * static_cast<float>(2 * small_scale + 1) * 0.125f;
    const auto upper = std::to_integer<std::size_t>(block[32 + g]);
    for (std::size_t k = 0; k < 2; ++k) {
      const auto point = std::to_integer<std::size_t>(block[2 * g + k]) | (upper >> 4 * k & 7) << 8;
      put_shifted(kGridIq1[point], (upper >> 4 * k & 8) != 0, &out.integers[16 * g + 8 * k]);
    }
  }
}

}  // namespace moeflux::blocks
