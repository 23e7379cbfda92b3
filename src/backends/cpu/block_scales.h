// The scales and biases of a tile of blocks as floats, [group][row]: the values of
// quant/block_codec.h. Plain loops over the rows of a tile, which compilers turn into vectors; for
// each instruction set that includes it. Everything has internal linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include "backends/cpu/rounded_blocks.h"

namespace moeflux::cpu {
namespace {

// Halves: to_floats(from, to) makes 16 half floats floats.
template <class Halves>
class BlockScales {
 public:
  BlockScales(const BlockTile& tile, const RoundedScratch& out) noexcept
      : halves_(tile.halves), bytes_(tile.bytes), scales_(out.scales), biases_(out.biases) {}

  void open(BlockType type, std::int64_t n_blocks) noexcept {
    const auto every = [&](auto open_block) {
      for (std::int64_t b = 0; b < n_blocks; ++b) (this->*open_block)();
    };
    switch (type) {
      case BlockType::Q4_0:
      case BlockType::Q5_0:
      case BlockType::Q8_0:
      case BlockType::IQ4_NL:
        return every(&BlockScales::open_half);
      case BlockType::Q4_1:
      case BlockType::Q5_1:
        return every(&BlockScales::open_halves);
      case BlockType::Q4_K:
      case BlockType::Q5_K:
        return every(&BlockScales::open_pairs_of_6_bits);
      case BlockType::Q2_K:
        return every(&BlockScales::open_nibbles);
      case BlockType::Q3_K:
        return every(&BlockScales::open_6_bits);
      case BlockType::Q6_K:
        return every(&BlockScales::open_bytes);
      case BlockType::IQ4_XS:
        return every(&BlockScales::open_6_bits_apart);
      case BlockType::MXFP4:
        return every(&BlockScales::open_e8m0);
      case BlockType::NVFP4:
        return every(&BlockScales::open_e4m3);
      default:
        return;
    }
  }

 private:
  // An element of each row.
  static constexpr int kRows = static_cast<int>(kTileRows);
  using Bytes = std::uint8_t __attribute__((vector_size(kRows)));
  using Words = std::uint16_t __attribute__((vector_size(2 * kRows)));
  struct alignas(64) Floats {
    float rows[kRows];
  };

  void open_half() noexcept {
    Halves::to_floats(halves_, scales_);
    halves_ += 2 * kRows;
    scales_ += kRows;
  }
  void open_halves() noexcept {
    open_half();
    Halves::to_floats(halves_, biases_);
    halves_ += 2 * kRows;
    biases_ += kRows;
  }

  void open_pairs_of_6_bits() noexcept {
    const Floats scale = next_half(), least = next_half();
    Bytes raw[12];
    next_bytes(raw);
    for (int g = 0; g < 4; ++g) {
      put_scales(scale, raw[g] & 63);
      put_biases(least, raw[g + 4] & 63);
    }
    for (int g = 0; g < 4; ++g) {
      put_scales(scale, (raw[g + 8] & 15) | (raw[g] >> 2 & 0x30));
      put_biases(least, raw[g + 8] >> 4 | (raw[g + 4] >> 2 & 0x30));
    }
  }

  void open_nibbles() noexcept {
    const Floats scale = next_half(), least = next_half();
    Bytes raw[16];
    next_bytes(raw);
    for (const Bytes& both : raw) {
      put_scales(scale, both & 15);
      put_biases(least, both >> 4);
    }
  }

  void open_6_bits() noexcept {
    const Floats scale = next_half();
    Bytes raw[12];
    next_bytes(raw);
    for (int g = 0; g < 16; ++g) {
      const Bytes low = g < 8 ? raw[g] & 15 : raw[g - 8] >> 4;
      put_scales<32>(scale, low | (raw[8 + g % 4] >> g / 4 * 2 & 3) << 4);
    }
  }

  void open_bytes() noexcept {
    const Floats scale = next_half();
    Bytes raw[16];
    next_bytes(raw);
    for (const Bytes& byte : raw) put_scales<128>(scale, byte ^ 0x80);
  }

  // Of IQ4_XS: the upper two bits of all are a word.
  void open_6_bits_apart() noexcept {
    const Floats scale = next_half();
    Words upper;
    std::memcpy(&upper, halves_, sizeof upper);
    halves_ += sizeof upper;
    Bytes raw[4];
    next_bytes(raw);
    for (int g = 0; g < 8; ++g) {
      const Bytes low = g % 2 == 0 ? raw[g / 2] & 15 : raw[g / 2] >> 4;
      const Words words = (upper >> 2 * g & 3) << 4;
      const Bytes high = __builtin_convertvector(words, Bytes);
      put_scales<32>(scale, low | high);
    }
  }

  // Half of a power of two: the bits of an exponent; those of 0 and 1 are subnormal numbers.
  void open_e8m0() noexcept {
    Bytes raw[1];
    next_bytes(raw);
    for (int r = 0; r < kRows; ++r) {
      const int exponent = raw[0][r];
      const int normal = (exponent - 1) * (1 << 23), subnormal = (exponent + 1) << 21;
      scales_[r] = __builtin_bit_cast(float, normal > subnormal ? normal : subnormal);
    }
    scales_ += kRows;
  }

  // Half of an E4M3 number without a sign; what would be NaN is 0. As half floats of the same bits
  // they are 256 times too small.
  void open_e4m3() noexcept {
    Bytes raw[4];
    next_bytes(raw);
    for (const Bytes& byte : raw) {
      const Bytes size = byte == 0x7F ? Bytes{} : byte & 0x7F;
      const Words halves = __builtin_convertvector(size, Words) << 7;
      Floats floats;
      Halves::to_floats(static_cast<const std::byte*>(static_cast<const void*>(&halves)),
                        floats.rows);
      for (int r = 0; r < kRows; ++r) scales_[r] = floats.rows[r] * 128.0f;
      scales_ += kRows;
    }
  }

  Floats next_half() noexcept {
    Floats result;
    Halves::to_floats(halves_, result.rows);
    halves_ += 2 * kRows;
    return result;
  }
  template <int N>
  void next_bytes(Bytes (&bytes)[N]) noexcept {
    std::memcpy(bytes, bytes_, sizeof bytes);
    bytes_ += sizeof bytes;
  }
  template <int Less = 0>
  void put_scales(const Floats& scale, const Bytes& bytes) noexcept {
    for (int r = 0; r < kRows; ++r)
      scales_[r] = scale.rows[r] * (static_cast<float>(int{bytes[r]}) - static_cast<float>(Less));
    scales_ += kRows;
  }
  void put_biases(const Floats& least, const Bytes& bytes) noexcept {
    for (int r = 0; r < kRows; ++r)
      biases_[r] = -(least.rows[r] * static_cast<float>(int{bytes[r]}));
    biases_ += kRows;
  }

  const std::byte *halves_, *bytes_;
  float *scales_, *biases_;
};

}  // namespace
}  // namespace moeflux::cpu
