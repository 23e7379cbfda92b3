// Whole blocks of a tile as codes from 0 on, with their scales as floats: the values of
// quant/block_codec.h. For every processor: a point of a grid is a load, and signs take two
// operations on registers of 16 bytes.
#include <array>
#include <cstring>

#include "backends/cpu/rounded_blocks.h"
#include "quant/block_codec.h"
#include "quant/block_grids.h"
#include "quant/codec.h"

namespace moeflux::cpu {
namespace {

constexpr std::size_t kValues = 256;  // of every type that has no planes
constexpr std::uint8_t kMiddle = 64;

// 16 codes, or as two words.
using Bytes = std::uint8_t __attribute__((vector_size(16)));
using Words = std::uint64_t __attribute__((vector_size(16)));

// A row's share of a block.
struct Opened {
  std::uint8_t* codes;  // [256]
  float* scales;        // one row of [group][16]

  void put_scale(std::size_t group, float value) const { scales[group * kTileRows] = value; }
  // Two words of codes, without the middle.
  void put(std::size_t first, const Words& integers) const {
    const Bytes bytes = load<Bytes>(&integers) + kMiddle;
    std::memcpy(codes + first, &bytes, sizeof bytes);
  }
  // Points with minus where `signs` has ones.
  void put_signed(std::size_t first, const Words& points, const Words& signs) const {
    const Words turned = points ^ signs;
    const Bytes bytes = load<Bytes>(&turned) - load<Bytes>(&signs) + kMiddle;
    std::memcpy(codes + first, &bytes, sizeof bytes);
  }

  template <class T>
  static T load(const void* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
};

template <class T>
T load(const std::byte* from) noexcept {
  return Opened::load<T>(from);
}
std::size_t index(std::byte byte) noexcept {
  return std::to_integer<std::size_t>(byte);
}
float half_at(const std::byte* from) noexcept {
  return f16_to_float(load<std::uint16_t>(from));
}

void open_iq2_xxs(const std::byte* block, const Opened& out) noexcept {
  const float scale = half_at(block) * 0.25f;
  for (std::size_t g = 0; g < 8; ++g) {
    const std::byte* at = block + 2 + 8 * g;
    const auto rest = load<std::uint32_t>(at + 4);
    out.put_scale(g, scale * (0.5f + static_cast<float>(rest >> 28)));
    for (std::size_t k = 0; k < 4; k += 2) {
      out.put_signed(32 * g + 8 * k,
                     Words{kGridIq2Xxs[index(at[k])], kGridIq2Xxs[index(at[k + 1])]},
                     Words{kEvenSigns[rest >> 7 * k & 127], kEvenSigns[rest >> 7 * (k + 1) & 127]});
    }
  }
}

void put_scales(const Opened& out, std::size_t first, float scale, std::byte both) noexcept {
  out.put_scale(first, scale * (0.5f + static_cast<float>(std::to_integer<int>(both) & 15)));
  out.put_scale(first + 1, scale * (0.5f + static_cast<float>(std::to_integer<int>(both) >> 4)));
}

void open_iq2_xs(const std::byte* block, const Opened& out) noexcept {
  const float scale = half_at(block) * 0.25f;
  for (std::size_t g = 0; g < 8; ++g) {
    put_scales(out, 2 * g, scale, block[66 + g]);
    const auto four = load<std::uint64_t>(block + 2 + 8 * g);
    for (std::size_t k = 0; k < 4; k += 2) {
      const std::uint64_t first = four >> 16 * k & 0xFFFF, second = four >> 16 * (k + 1) & 0xFFFF;
      out.put_signed(32 * g + 8 * k, Words{kGridIq2Xs[first & 511], kGridIq2Xs[second & 511]},
                     Words{kEvenSigns[first >> 9], kEvenSigns[second >> 9]});
    }
  }
}

void open_iq2_s(const std::byte* block, const Opened& out) noexcept {
  const float scale = half_at(block) * 0.25f;
  for (std::size_t g = 0; g < 8; ++g) {
    put_scales(out, 2 * g, scale, block[74 + g]);
    const std::byte *at = block + 2 + 4 * g, *signs = block + 34 + 4 * g;
    const std::size_t upper = index(block[66 + g]) << 8;
    const auto point = [&](std::size_t k) {
      return kGridIq2S[index(at[k]) | (upper >> 2 * k & 0x300)];
    };
    for (std::size_t k = 0; k < 4; k += 2) {
      out.put_signed(32 * g + 8 * k, Words{point(k), point(k + 1)},
                     Words{kSigns[index(signs[k])], kSigns[index(signs[k + 1])]});
    }
  }
}

std::uint64_t two_points(std::uint32_t first, std::uint32_t second) noexcept {
  return first | std::uint64_t{second} << 32;
}

void open_iq3_xxs(const std::byte* block, const Opened& out) noexcept {
  const float scale = half_at(block) * 0.5f;
  for (std::size_t g = 0; g < 8; ++g) {
    const std::byte* at = block + 2 + 8 * g;
    const auto rest = load<std::uint32_t>(block + 66 + 4 * g);
    out.put_scale(g, scale * (0.5f + static_cast<float>(rest >> 28)));
    const auto points = [&](std::size_t k) {
      return two_points(kGridIq3Xxs[index(at[2 * k])], kGridIq3Xxs[index(at[2 * k + 1])]);
    };
    for (std::size_t k = 0; k < 4; k += 2) {
      out.put_signed(32 * g + 8 * k, Words{points(k), points(k + 1)},
                     Words{kEvenSigns[rest >> 7 * k & 127], kEvenSigns[rest >> 7 * (k + 1) & 127]});
    }
  }
}

void open_iq3_s(const std::byte* block, const Opened& out) noexcept {
  const float scale = half_at(block);
  for (std::size_t g = 0; g < 8; ++g) {
    const int small = std::to_integer<int>(block[106 + g / 2]) >> 4 * (g % 2) & 15;
    out.put_scale(g, scale * static_cast<float>(1 + 2 * small));
    const std::byte *at = block + 2 + 8 * g, *signs = block + 74 + 4 * g;
    const std::size_t upper = index(block[66 + g]) << 8;
    const auto point = [&](std::size_t k) {
      return kGridIq3S[index(at[k]) | (upper >> k & 0x100)];
    };
    for (std::size_t k = 0; k < 4; k += 2) {
      out.put_signed(32 * g + 8 * k,
                     Words{two_points(point(2 * k), point(2 * k + 1)),
                           two_points(point(2 * k + 2), point(2 * k + 3))},
                     Words{kSigns[index(signs[k])], kSigns[index(signs[k + 1])]});
    }
  }
}

// Points of -1, 0 and 1 as eighths, one of which is added to each or taken.
void put_shifted(const Opened& out, std::size_t first, const Words& points, bool less_first,
                 bool less_second) noexcept {
  constexpr std::uint64_t kOnes = 0x0101010101010101u;
  const Words shifts{less_first ? ~std::uint64_t{0} : kOnes,
                     less_second ? ~std::uint64_t{0} : kOnes};
  Bytes bytes = Opened::load<Bytes>(&points);
  for (int doubled = 0; doubled < 3; ++doubled) bytes += bytes;
  bytes += Opened::load<Bytes>(&shifts) + kMiddle;
  std::memcpy(out.codes + first, &bytes, sizeof bytes);
}

void open_iq1_s(const std::byte* block, const Opened& out) noexcept {
  const float scale = half_at(block) * 0.125f;
  for (std::size_t g = 0; g < 8; ++g) {
    const std::size_t word = load<std::uint16_t>(block + 34 + 2 * g);
    out.put_scale(g, scale * static_cast<float>(2 * (word >> 12 & 7) + 1));
    const bool less = (word & 0x8000) != 0;
    const auto point = [&](std::size_t k) {
      return kGridIq1[index(block[2 + 4 * g + k]) | (word >> 3 * k & 7) << 8];
    };
    for (std::size_t k = 0; k < 4; k += 2)
      put_shifted(out, 32 * g + 8 * k, Words{point(k), point(k + 1)}, less, less);
  }
}

void open_iq1_m(const std::byte* block, const Opened& out) noexcept {
  const auto words = load<std::uint64_t>(block + 48);
  const std::uint64_t bits =
      (words >> 12 & 0xF) | (words >> 24 & 0xF0) | (words >> 36 & 0xF00) | (words >> 48 & 0xF000);
  const float scale = f16_to_float(static_cast<std::uint16_t>(bits)) * 0.125f;
  for (std::size_t g = 0; g < 16; ++g) {
    const std::uint64_t small = words >> (16 * (g / 4) + 3 * (g % 4)) & 7;
    out.put_scale(g, scale * static_cast<float>(2 * small + 1));
    const std::size_t upper = index(block[32 + g]);
    put_shifted(out, 16 * g,
                Words{kGridIq1[index(block[2 * g]) | (upper & 7) << 8],
                      kGridIq1[index(block[2 * g + 1]) | (upper >> 4 & 7) << 8]},
                (upper & 8) != 0, (upper & 0x80) != 0);
  }
}

// 0, 1 or 2, of which 1 is the middle: how often 256 is in three times the byte.
Bytes ternary_codes(const Bytes& bytes) noexcept {
  // Comparisons give -1.
  return (kMiddle - 1) - (bytes >= 86) - (bytes >= 171);
}

void open_tq1_0(const std::byte* block, const Opened& out) noexcept {
  for (std::size_t g = 0; g < 8; ++g) out.put_scale(g, half_at(block + 52));
  const auto put_digits = [&](Bytes digits, std::size_t first, std::size_t step, int count) {
    for (int n = 0; n < count; ++n, first += step, digits += digits + digits) {
      const Bytes codes = ternary_codes(digits);
      std::memcpy(out.codes + first, &codes, std::min(step, sizeof codes));
    }
  };
  put_digits(load<Bytes>(block), 0, 32, 5);
  put_digits(load<Bytes>(block + 16), 16, 32, 5);
  put_digits(load<Bytes>(block + 32), 160, 16, 5);
  Bytes last{};
  std::memcpy(&last, block + 48, 4);
  put_digits(last, 240, 4, 4);
}

void open_tq2_0(const std::byte* block, const Opened& out) noexcept {
  for (std::size_t g = 0; g < 8; ++g) out.put_scale(g, half_at(block + 64));
  for (std::size_t i = 0; i < 64; i += 16) {
    Bytes pairs = load<Bytes>(block + i);
    for (std::size_t k = 0; k < 4; ++k, pairs >>= 2) {
      const Bytes codes = (pairs & 3) + (kMiddle - 1);
      std::memcpy(out.codes + i / 32 * 128 + 32 * k + i % 32, &codes, sizeof codes);
    }
  }
}

using Open = void (*)(const std::byte* block, const Opened& out) noexcept;

Open opener_of(BlockType type) noexcept {
  switch (type) {
    case BlockType::IQ1_S:
      return open_iq1_s;
    case BlockType::IQ1_M:
      return open_iq1_m;
    case BlockType::IQ2_XXS:
      return open_iq2_xxs;
    case BlockType::IQ2_XS:
      return open_iq2_xs;
    case BlockType::IQ2_S:
      return open_iq2_s;
    case BlockType::IQ3_XXS:
      return open_iq3_xxs;
    case BlockType::IQ3_S:
      return open_iq3_s;
    case BlockType::TQ1_0:
      return open_tq1_0;
    default:
      return open_tq2_0;
  }
}

}  // namespace

void open_whole_blocks(BlockType type, const BlockTile& tile, std::int64_t cols,
                       const RoundedScratch& out) noexcept {
  constexpr std::int64_t kRowsAtOnce = 4, kBlockFours = kValues / 4;
  const Open open = opener_of(type);
  const BlockShape shape = block_shape(type);
  const std::int64_t n_groups = shape.values / block_groups(type).values, row_bytes = shape.bytes;
  alignas(64) std::uint8_t codes[kRowsAtOnce][kValues];
  for (std::int64_t b = 0; b < cols / shape.values; ++b) {
    float* scales = out.scales + b * n_groups * kTileRows;
    for (std::int64_t first = 0; first < kTileRows; first += kRowsAtOnce) {
      for (std::int64_t r = first; r < first + kRowsAtOnce; ++r) {
        std::uint8_t* row = codes[r - first];
        if (r < tile.n_rows) {
          const std::byte* block = tile.codes + (b * tile.n_rows + r) * row_bytes;
          open(block, {row, scales + r});
        } else {
          std::memset(row, kMiddle, kValues);
          for (std::int64_t g = 0; g < n_groups; ++g) scales[g * kTileRows + r] = 0;
        }
      }
      transpose_dwords(static_cast<const std::byte*>(static_cast<const void*>(codes)), kValues,
                       kRowsAtOnce, kBlockFours,
                       out.codes + (b * kBlockFours * kTileRows + first) * 4, kTileRows * 4);
    }
  }
}

}  // namespace moeflux::cpu
