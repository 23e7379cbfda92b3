#include "quant/block_tile.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "quant/interleave.h"

namespace moeflux {
namespace block_tile {
namespace {

// A dword of each of four rows: the width that every processor has.
using Lanes = std::uint32_t __attribute__((vector_size(16)));
constexpr std::int64_t kLanes = 4;
constexpr int kMostDwords = 56;  // of a block

struct Layout {
  BlockTiling tiling;
  int halves_at = 0, bytes_at = 0, codes_at = 0;  // in a block
};

Layout layout_of(BlockType type) {
  switch (type) {
    case BlockType::Q4_0:
      return {{.has_planes = true, .halves = 1, .low_bits = 4, .middle = 8}, 0, 0, 2};
    case BlockType::Q4_1:
      return {{.has_planes = true, .halves = 2, .low_bits = 4}, 0, 0, 4};
    case BlockType::Q5_0:
      return {
          {.has_planes = true, .halves = 1, .low_bits = 4, .high_bits = 1, .middle = 16}, 0, 0, 2};
    case BlockType::Q5_1:
      return {{.has_planes = true, .halves = 2, .low_bits = 4, .high_bits = 1}, 0, 0, 4};
    case BlockType::Q8_0:
      return {{.has_planes = true, .halves = 1, .low_bits = 8, .middle = 128}, 0, 0, 2};
    case BlockType::Q2_K:
      return {{.has_planes = true, .halves = 2, .bytes = 16, .low_bits = 2}, 80, 0, 16};
    case BlockType::Q3_K:
      return {{.has_planes = true,
               .halves = 1,
               .bytes = 12,
               .low_bits = 2,
               .high_bits = 1,
               .middle = 4},
              108,
              96,
              0};
    case BlockType::Q4_K:
      return {{.has_planes = true, .halves = 2, .bytes = 12, .low_bits = 4}, 0, 4, 16};
    case BlockType::Q5_K:
      return {
          {.has_planes = true, .halves = 2, .bytes = 12, .low_bits = 4, .high_bits = 1}, 0, 4, 16};
    case BlockType::Q6_K:
      return {{.has_planes = true,
               .halves = 1,
               .bytes = 16,
               .low_bits = 4,
               .high_bits = 2,
               .middle = 32},
              208,
              192,
              0};
    case BlockType::IQ4_NL:
      return {{.has_planes = true, .halves = 1, .low_bits = 4, .has_table = true, .middle = 128},
              0,
              0,
              2};
    case BlockType::IQ4_XS:
      return {{.has_planes = true,
               .halves = 2,
               .bytes = 4,
               .low_bits = 4,
               .has_table = true,
               .middle = 128},
              0,
              4,
              8};
    case BlockType::MXFP4:
      return {{.has_planes = true, .bytes = 1, .low_bits = 4, .has_table = true, .middle = 12},
              0,
              0,
              1};
    case BlockType::NVFP4:
      return {{.has_planes = true, .bytes = 4, .low_bits = 4, .has_table = true, .middle = 12},
              0,
              0,
              4};
    default:
      return {{.middle = 64}, 0, 0, 0};
  }
}

// ---- codes: from the dwords of blocks to those of planes and back, all rows at once

constexpr std::uint32_t kNibbles = 0x0F0F0F0F, kPairs = 0x03030303, kBits = 0x01010101;

Lanes low(const Lanes& x) {
  return x & kNibbles;
}
Lanes high(const Lanes& x) {
  return x >> 4 & kNibbles;
}
Lanes both(const Lanes& lower, const Lanes& upper) {
  return lower | upper << 4;
}

// Two dwords whose lower and upper nibbles are each eight neighbours.
void turn_nibbles(const Lanes& a, const Lanes& b, Lanes& lower, Lanes& upper) {
  lower = both(low(a), low(b));
  upper = both(high(a), high(b));
}

// Of `n` dwords: their lower nibbles come first, then the upper ones. The same back and forth but
// for the order.
void nibbles_to_plane(const Lanes* in, int n, Lanes* out) {
  for (int i = 0; i < n / 2; ++i) turn_nibbles(in[2 * i], in[2 * i + 1], out[i], out[n / 2 + i]);
}
void nibbles_to_block(const Lanes* in, int n, Lanes* out) {
  for (int i = 0; i < n / 2; ++i) turn_nibbles(in[i], in[n / 2 + i], out[2 * i], out[2 * i + 1]);
}

// Bit b of byte j of dword m to bit m of byte j of dword b: its own inverse.
void turn_bits(const Lanes* in, Lanes* out) {
  for (int b = 0; b < 8; ++b) {
    Lanes sum = in[0] >> b & kBits;
    for (int m = 1; m < 8; ++m) sum |= (in[m] >> b & kBits) << m;
    out[b] = sum;
  }
}

// The same for pairs of bits of four dwords that lie `step` apart.
void turn_pairs(const Lanes* in, int in_step, Lanes* out, int out_step) {
  for (int b = 0; b < 4; ++b) {
    Lanes sum = in[0] >> 2 * b & kPairs;
    for (int m = 1; m < 4; ++m) sum |= (in[m * in_step] >> 2 * b & kPairs) << 2 * m;
    out[b * out_step] = sum;
  }
}

// Codes of 2 bits of 128 columns: dword m of 8 has the fours m, 8 + m, 16 + m and 24 + m; in the
// plane a dword has four neighbours.
void pairs_to_plane(const Lanes* in, Lanes* out) {
  for (int m = 0; m < 8; m += 4) turn_pairs(in + m, 1, out + m / 4, 2);
}
void pairs_to_block(const Lanes* in, Lanes* out) {
  for (int m = 0; m < 8; m += 4) turn_pairs(in + m / 4, 2, out + m, 1);
}

// 32 bits in the order of columns, to bit m of byte j for column 4 m + j, and back.
Lanes bits_to_plane(const Lanes& in) {
  Lanes out{};
  for (int m = 0; m < 8; ++m) {
    const Lanes four = in >> 4 * m & 15u;
    out |= ((four | four << 7 | four << 14 | four << 21) & kBits) << m;
  }
  return out;
}
Lanes bits_to_block(const Lanes& in) {
  Lanes out{};
  for (int m = 0; m < 8; ++m) {
    const Lanes four = in >> m & kBits;
    out |= ((four | four >> 7 | four >> 14 | four >> 21) & 15u) << 4 * m;
  }
  return out;
}

void to_plane(BlockType type, const Lanes* in, Lanes* out) {
  switch (type) {
    case BlockType::Q5_0:
    case BlockType::Q5_1:
      nibbles_to_plane(in + 1, 4, out);
      out[4] = bits_to_plane(in[0]);
      return;
    case BlockType::Q8_0:
      for (int i = 0; i < 8; ++i) out[i] = in[i] ^ 0x80808080u;
      return;
    case BlockType::Q2_K:
      for (int i = 0; i < 16; i += 8) pairs_to_plane(in + i, out + i);
      return;
    case BlockType::Q3_K: {
      Lanes pairs[16], bits[8];
      for (int i = 0; i < 16; i += 8) pairs_to_plane(in + 8 + i, pairs + i);
      turn_bits(in, bits);
      for (int i = 0; i < 8; ++i) {
        out[3 * i] = pairs[2 * i];
        out[3 * i + 1] = pairs[2 * i + 1];
        out[3 * i + 2] = bits[i];
      }
      return;
    }
    case BlockType::Q4_K:
      for (int i = 0; i < 32; i += 8) nibbles_to_plane(in + i, 8, out + i);
      return;
    case BlockType::Q5_K: {
      Lanes bits[8], nibbles[32];
      turn_bits(in, bits);
      for (int i = 0; i < 32; i += 8) nibbles_to_plane(in + 8 + i, 8, nibbles + i);
      for (int i = 0; i < 8; ++i) {
        for (int k = 0; k < 4; ++k) out[5 * i + k] = nibbles[4 * i + k];
        out[5 * i + 4] = bits[i];
      }
      return;
    }
    case BlockType::Q6_K:
      for (int half = 0; half < 2; ++half) {
        Lanes nibbles[16], pairs[8];
        nibbles_to_plane(in + 16 * half, 16, nibbles);
        pairs_to_plane(in + 32 + 8 * half, pairs);
        for (int i = 0; i < 8; ++i) {
          Lanes* to = out + 24 * half + 3 * i;
          to[0] = nibbles[2 * i];
          to[1] = nibbles[2 * i + 1];
          to[2] = pairs[i];
        }
      }
      return;
    case BlockType::IQ4_XS:
      for (int i = 0; i < 32; i += 4) nibbles_to_plane(in + i, 4, out + i);
      return;
    case BlockType::NVFP4:
      for (int i = 0; i < 8; i += 2) nibbles_to_plane(in + i, 2, out + i);
      return;
    default:  // Q4_0, Q4_1, IQ4_NL, MXFP4
      return nibbles_to_plane(in, 4, out);
  }
}

void to_block(BlockType type, const Lanes* in, Lanes* out) {
  switch (type) {
    case BlockType::Q5_0:
    case BlockType::Q5_1:
      nibbles_to_block(in, 4, out + 1);
      out[0] = bits_to_block(in[4]);
      return;
    case BlockType::Q8_0:
      for (int i = 0; i < 8; ++i) out[i] = in[i] ^ 0x80808080u;
      return;
    case BlockType::Q2_K:
      for (int i = 0; i < 16; i += 8) pairs_to_block(in + i, out + i);
      return;
    case BlockType::Q3_K: {
      Lanes pairs[16], bits[8];
      for (int i = 0; i < 8; ++i) {
        pairs[2 * i] = in[3 * i];
        pairs[2 * i + 1] = in[3 * i + 1];
        bits[i] = in[3 * i + 2];
      }
      turn_bits(bits, out);
      for (int i = 0; i < 16; i += 8) pairs_to_block(pairs + i, out + 8 + i);
      return;
    }
    case BlockType::Q4_K:
      for (int i = 0; i < 32; i += 8) nibbles_to_block(in + i, 8, out + i);
      return;
    case BlockType::Q5_K: {
      Lanes bits[8], nibbles[32];
      for (int i = 0; i < 8; ++i) {
        for (int k = 0; k < 4; ++k) nibbles[4 * i + k] = in[5 * i + k];
        bits[i] = in[5 * i + 4];
      }
      turn_bits(bits, out);
      for (int i = 0; i < 32; i += 8) nibbles_to_block(nibbles + i, 8, out + 8 + i);
      return;
    }
    case BlockType::Q6_K:
      for (int half = 0; half < 2; ++half) {
        Lanes nibbles[16], pairs[8];
        for (int i = 0; i < 8; ++i) {
          const Lanes* from = in + 24 * half + 3 * i;
          nibbles[2 * i] = from[0];
          nibbles[2 * i + 1] = from[1];
          pairs[i] = from[2];
        }
        nibbles_to_block(nibbles, 16, out + 16 * half);
        pairs_to_block(pairs, out + 32 + 8 * half);
      }
      return;
    case BlockType::IQ4_XS:
      for (int i = 0; i < 32; i += 4) nibbles_to_block(in + i, 4, out + i);
      return;
    case BlockType::NVFP4:
      for (int i = 0; i < 8; i += 2) nibbles_to_block(in + i, 2, out + i);
      return;
    default:
      return nibbles_to_block(in, 4, out);
  }
}

// ---- between rows and planes

template <class T>
void copy_elements(const std::byte* from, std::int64_t from_row, std::int64_t from_element,
                   std::byte* to, std::int64_t to_row, std::int64_t to_element, std::int64_t n_rows,
                   int n_elements) {
  for (std::int64_t r = 0; r < n_rows; ++r) {
    for (int e = 0; e < n_elements; ++e)
      std::memcpy(to + r * to_row + e * to_element, from + r * from_row + e * from_element,
                  sizeof(T));
  }
}

struct Tile {
  BlockType type;
  Layout layout;
  BlockShape shape;
  std::int64_t n_rows, n_blocks;
  TilePlanes planes;
  int dwords;

  Tile(BlockType block_type, std::int64_t rows, std::int64_t cols)
      : type(block_type),
        layout(layout_of(block_type)),
        shape(block_shape(block_type)),
        n_rows(rows),
        n_blocks(cols / shape.values),
        planes(tile_planes(block_type, rows, cols)),
        dwords(static_cast<int>(shape.values) * layout.tiling.bits() / 32) {}

  std::int64_t halves_of(std::int64_t block) const {
    return planes.halves + block * layout.tiling.halves * n_rows * 2;
  }
  std::int64_t bytes_of(std::int64_t block) const {
    return planes.bytes + block * layout.tiling.bytes * n_rows;
  }
  std::int64_t codes_of(std::int64_t block) const {
    return planes.codes + block * dwords * n_rows * 4;
  }

  // Block `block` of all rows, which lie `stride` apart; as many as whole fours of rows can be
  // read.
  void write(const std::byte* rows, std::int64_t stride, std::int64_t block,
             std::byte* tile) const {
    copy_elements<std::uint16_t>(rows + layout.halves_at, stride, 2, tile + halves_of(block), 2,
                                 2 * n_rows, n_rows, layout.tiling.halves);
    copy_elements<std::byte>(rows + layout.bytes_at, stride, 1, tile + bytes_of(block), 1, n_rows,
                             n_rows, layout.tiling.bytes);
    for (std::int64_t r = 0; r < n_rows; r += kLanes) {
      Lanes in[kMostDwords], out[kMostDwords];
      transpose_dwords(rows + r * stride + layout.codes_at, stride, kLanes, dwords, bytes_of(in),
                       sizeof(Lanes));
      to_plane(type, in, out);
      std::byte* to = tile + codes_of(block) + r * 4;
      for_dwords(
          r, [&](int i, std::size_t bytes) { std::memcpy(to + i * n_rows * 4, &out[i], bytes); });
    }
  }

  // As many as whole fours of rows can be written.
  void read(const std::byte* tile, std::int64_t block, std::byte* rows, std::int64_t stride) const {
    for (std::int64_t r = 0; r < n_rows; r += kLanes) {
      Lanes in[kMostDwords] = {}, out[kMostDwords];
      const std::byte* from = tile + codes_of(block) + r * 4;
      for_dwords(
          r, [&](int i, std::size_t bytes) { std::memcpy(&in[i], from + i * n_rows * 4, bytes); });
      to_block(type, in, out);
      transpose_dwords(bytes_of(out), sizeof(Lanes), dwords, kLanes,
                       rows + r * stride + layout.codes_at, stride);
    }
    copy_elements<std::uint16_t>(tile + halves_of(block), 2, 2 * n_rows, rows + layout.halves_at,
                                 stride, 2, n_rows, layout.tiling.halves);
    copy_elements<std::byte>(tile + bytes_of(block), 1, n_rows, rows + layout.bytes_at, stride, 1,
                             n_rows, layout.tiling.bytes);
  }

 private:
  // Calls body(dword, bytes of those of the four rows from `row` on that are there).
  template <class Body>
  void for_dwords(std::int64_t row, const Body& body) const {
    if (n_rows - row >= kLanes) {
      for (int i = 0; i < dwords; ++i) body(i, sizeof(Lanes));
    } else {
      for (int i = 0; i < dwords; ++i) body(i, static_cast<std::size_t>(n_rows - row) * 4);
    }
  }
  static std::byte* bytes_of(Lanes* lanes) {
    return static_cast<std::byte*>(static_cast<void*>(lanes));
  }
};

// [rows, cols] whole blocks to [cols, rows].
void turn_blocks(const std::byte* from, std::int64_t rows, std::int64_t cols, std::int64_t bytes,
                 std::byte* to) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c)
      std::memcpy(to + (c * rows + r) * bytes, from + (r * cols + c) * bytes,
                  static_cast<std::size_t>(bytes));
  }
}

}  // namespace
}  // namespace block_tile

BlockTiling block_tiling(BlockType type) {
  return block_tile::layout_of(type).tiling;
}

TilePlanes tile_planes(BlockType type, std::int64_t n_rows, std::int64_t cols) {
  const BlockTiling tiling = block_tiling(type);
  const BlockShape shape = block_shape(type);
  const std::int64_t blocks = n_rows * (cols / shape.values);
  TilePlanes planes;
  planes.bytes = planes.halves + blocks * tiling.halves * 2;
  planes.codes = planes.bytes + blocks * tiling.bytes;
  planes.end = blocks * shape.bytes;
  return planes;
}

void arrange_block_tile(BlockType type, std::byte* tile, std::int64_t n_rows, std::int64_t cols,
                        bool to_tiles, std::span<std::byte> scratch) {
  const block_tile::Tile t(type, n_rows, cols);
  const std::int64_t row_bytes = t.n_blocks * t.shape.bytes;
  MOEFLUX_ASSERT(std::ssize(scratch) >= kTileRows * row_bytes);
  const auto size = static_cast<std::size_t>(n_rows * row_bytes);
  if (!t.layout.tiling.has_planes) {
    std::memcpy(scratch.data(), tile, size);
    to_tiles ? block_tile::turn_blocks(scratch.data(), n_rows, t.n_blocks, t.shape.bytes, tile)
             : block_tile::turn_blocks(scratch.data(), t.n_blocks, n_rows, t.shape.bytes, tile);
    return;
  }
  if (to_tiles) {
    std::memcpy(scratch.data(), tile, size);
    for (std::int64_t b = 0; b < t.n_blocks; ++b)
      t.write(scratch.data() + b * t.shape.bytes, row_bytes, b, tile);
  } else {
    for (std::int64_t b = 0; b < t.n_blocks; ++b)
      t.read(tile, b, scratch.data() + b * t.shape.bytes, row_bytes);
    std::memcpy(tile, scratch.data(), size);
  }
}

void take_blocks(BlockType type, const std::byte* tile, std::int64_t n_rows, std::int64_t cols,
                 std::int64_t index, std::byte* out) noexcept {
  const block_tile::Tile t(type, n_rows, cols);
  if (t.layout.tiling.has_planes) return t.read(tile, index, out, t.shape.bytes);
  std::memcpy(out, tile + index * n_rows * t.shape.bytes,
              static_cast<std::size_t>(n_rows * t.shape.bytes));
}

}  // namespace moeflux
