#include "quant/block_tile.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "quant/block_codec.h"
#include "quant/block_vectors.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace moeflux {
namespace {

// Rows of blocks of the vectors, at an odd address, with guards around them.
class Rows {
 public:
  Rows(const test::BlockVectors& from, std::int64_t rows, std::int64_t blocks_per_row)
      : type_(from.type),
        rows_(rows),
        cols_(blocks_per_row * block_shape(from.type).values),
        bytes_(static_cast<std::size_t>(rows * row_bytes() + 2), std::byte{0x5A}) {
    for (std::int64_t i = 0; i < rows * row_bytes(); ++i)
      bytes_[static_cast<std::size_t>(i + 1)] =
          from.blocks[static_cast<std::size_t>(i) % from.blocks.size()];
  }

  WeightView view() const {
    return {.format = {.kind = WeightKind::Block, .is_interleaved = interleaved_, .blocks = type_},
            .rows = rows_,
            .cols = cols_,
            .data = bytes_.data() + 1};
  }
  std::int64_t row_bytes() const {
    return cols_ / block_shape(type_).values * block_shape(type_).bytes;
  }
  void arrange() {
    std::vector<std::byte> scratch(tile_scratch_bytes(view().format, cols_));
    for (std::int64_t i = 0; i < n_tiles(rows_); ++i) arrange_tile(view(), i, scratch);
    interleaved_ = !interleaved_;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  BlockType type_;
  std::int64_t rows_, cols_;
  std::vector<std::byte> bytes_;
  bool interleaved_ = false;
};

template <class Visit>
void for_all_rows(const Visit& visit) {
  for (const test::BlockVectors& vectors : test::read_block_vectors()) {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 15, 16, 17, 35}) {
      for (const std::int64_t blocks : {1, 3}) {
        SCOPED_TRACE(testing::Message()
                     << block_type_name(vectors.type) << ", " << rows << " rows of " << blocks);
        visit(Rows(vectors, rows, blocks));
      }
    }
  }
}

TEST(BlockTile, FromRowsAndBackChangesNothing) {
  for_all_rows([](Rows rows) {
    const std::vector<std::byte> before = rows.bytes();
    rows.arrange();
    EXPECT_EQ(rows.bytes().front(), before.front());
    EXPECT_EQ(rows.bytes().back(), before.back());
    rows.arrange();
    EXPECT_TRUE(rows.bytes() == before);
  });
}

TEST(BlockTile, RowsDecodeToTheSameNumbers) {
  for_all_rows([](const Rows& in_rows) {
    Rows interleaved = in_rows;
    interleaved.arrange();
    const WeightView rows = in_rows.view(), tiles = interleaved.view();
    std::vector<float> want(static_cast<std::size_t>(rows.cols)), got(want.size());
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      decode_row(rows, r, want.data());
      decode_row(tiles, r, got.data());
      EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0) << r;
    }
  });
}

TEST(BlockTile, PlanesTakeTheBytesOfTheRows) {
  for (const test::BlockVectors& vectors : test::read_block_vectors()) {
    const BlockShape shape = block_shape(vectors.type);
    const BlockTiling tiling = block_tiling(vectors.type);
    const TilePlanes planes = tile_planes(vectors.type, 5, 2 * shape.values);
    EXPECT_EQ(planes.end, 5 * 2 * shape.bytes) << block_type_name(vectors.type);
    if (!tiling.has_planes) continue;
    EXPECT_EQ(planes.end - planes.codes, 5 * 2 * shape.values * tiling.bits() / 8);
    EXPECT_EQ(planes.codes - planes.bytes, std::int64_t{5 * 2} * tiling.bytes);
    EXPECT_EQ(planes.bytes - planes.halves, std::int64_t{5 * 2 * 2} * tiling.halves);
  }
}

// Code c of row r of a tile, as the header has it.
int code_at(const BlockTiling& tiling, const std::byte* codes, std::int64_t n_rows, std::int64_t r,
            std::int64_t c) {
  const auto bits_of = [&](std::int64_t dword, std::int64_t first_code, int bits) {
    std::uint32_t value;
    std::memcpy(&value, codes + (dword * n_rows + r) * 4, sizeof value);
    const std::int64_t four = (c - first_code) / 4, in_four = c % 4;
    return static_cast<int>(value >> (8 * in_four + four * bits) & ((1u << bits) - 1));
  };
  const int low = tiling.low_bits, high = tiling.high_bits;
  const std::int64_t per_dword = 32 / low;
  if (high == 0) return bits_of(c / per_dword, c / per_dword * per_dword, low);
  const std::int64_t unit = 32 / high, dwords = unit / per_dword + 1;
  const std::int64_t first = c / unit * unit, in_unit = c - first;
  return bits_of(c / unit * dwords + in_unit / per_dword, first + in_unit / per_dword * per_dword,
                 low) |
         bits_of(c / unit * dwords + dwords - 1, first, high) << low;
}

TEST(BlockTile, TheOrderOfCodesIsAsDefined) {
  for_all_rows([](Rows rows) {
    const BlockType type = rows.view().format.blocks;
    const BlockTiling tiling = block_tiling(type);
    const BlockShape shape = block_shape(type);
    if (!tiling.has_planes) return;
    std::vector<std::byte> in_rows(rows.bytes().begin() + 1, rows.bytes().end());
    rows.arrange();
    const WeightView view = rows.view();
    for (std::int64_t r = 0; r < view.rows; ++r) {
      const std::int64_t first = r / kTileRows * kTileRows;
      const std::int64_t n = std::min(kTileRows, view.rows - first);
      const std::byte* tile = view.data + first * rows.row_bytes();
      const std::byte* codes = tile + tile_planes(type, n, view.cols).codes;
      for (std::int64_t c = 0; c < view.cols; ++c) {
        BlockParts parts;
        split_block(type, in_rows.data() + r * rows.row_bytes() + c / shape.values * shape.bytes,
                    parts);
        int code = code_at(tiling, codes, n, r - first, c);
        if (tiling.has_table) {
          constexpr std::array<int, 16> kNonLinear{-127, -104, -83, -65, -49, -35, -22, -10,
                                                   1,    13,   25,  38,  53,  69,  89,  113};
          constexpr std::array<int, 16> kE2m1{0, 1,  2,  3,  4,  6,  8,  12,
                                              0, -1, -2, -3, -4, -6, -8, -12};
          code = (tiling.middle == 12 ? kE2m1 : kNonLinear).at(static_cast<std::size_t>(code)) +
                 tiling.middle;
        }
        ASSERT_EQ(code - tiling.middle, parts.integers[static_cast<std::size_t>(c % shape.values)])
            << "row " << r << ", column " << c;
      }
    }
  });
}

// 3 rows of a block of Q4_K: two halves and 12 bytes each come first.
TEST(BlockTile, TheOrderOfScalesIsAsDefined) {
  std::vector<std::byte> tile(3 * 144);
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t i = 0; i < 16; ++i) tile[144 * r + i] = static_cast<std::byte>(16 * r + i);
  }
  std::vector<std::byte> scratch(16 * 144);
  arrange_block_tile(BlockType::Q4_K, tile.data(), 3, 256, /*to_tiles=*/true, scratch);
  const TilePlanes planes = tile_planes(BlockType::Q4_K, 3, 256);
  EXPECT_EQ(planes.bytes, 12);
  EXPECT_EQ(planes.codes, 48);
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(tile[(3 * i + r) * 2], static_cast<std::byte>(16 * r + 2 * i));
      EXPECT_EQ(tile[(3 * i + r) * 2 + 1], static_cast<std::byte>(16 * r + 2 * i + 1));
    }
    for (std::size_t i = 0; i < 12; ++i)
      EXPECT_EQ(tile[12 + 3 * i + r], static_cast<std::byte>(16 * r + 4 + i));
  }
}

}  // namespace
}  // namespace moeflux
