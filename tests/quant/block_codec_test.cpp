#include "quant/block_codec.h"

#include <bit>
#include <vector>

#include <gtest/gtest.h>

#include "quant/block_vectors.h"
#include "quant/codec.h"

namespace moeflux {
namespace {

using test::BlockVectors;

TEST(BlockCodec, EveryTypeIsAsAnotherDecoderHasIt) {
  const std::vector<BlockVectors> all = test::read_block_vectors();
  ASSERT_EQ(all.size(), 23u);
  for (const BlockVectors& one : all) {
    SCOPED_TRACE(block_type_name(one.type));
    std::vector<float> got(one.values.size());
    decode_blocks(one.type, one.blocks.data(), one.n_blocks, got.data());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(one.values[i]))
          << i << ": " << got[i] << " instead of " << one.values[i];
    }
  }
}

// Rows of a matrix are whole blocks, one row after the other.
TEST(BlockCodec, RowsOfAMatrix) {
  for (const BlockVectors& one : test::read_block_vectors()) {
    SCOPED_TRACE(block_type_name(one.type));
    const std::int64_t cols = 2 * block_shape(one.type).values;
    const WeightView matrix{.format = {.kind = WeightKind::Block, .blocks = one.type},
                            .rows = one.n_blocks / 2,
                            .cols = cols,
                            .data = one.blocks.data()};
    std::vector<float> row(static_cast<std::size_t>(cols));
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
      decode_row(matrix, r, row.data());
      EXPECT_TRUE(
          std::memcmp(row.data(), one.values.data() + r * cols, row.size() * sizeof(float)) == 0)
          << r;
    }
  }
}

TEST(BlockCodec, PartsAreIntegersScalesAndBiases) {
  for (const BlockVectors& one : test::read_block_vectors()) {
    SCOPED_TRACE(block_type_name(one.type));
    const BlockShape shape = block_shape(one.type);
    const BlockGroups groups = block_groups(one.type);
    EXPECT_TRUE(groups.values == 16 || groups.values == 32);
    for (std::int64_t b = 0; b < one.n_blocks; ++b) {
      BlockParts parts;
      split_block(one.type, one.blocks.data() + b * shape.bytes, parts);
      for (std::int64_t i = 0; i < shape.values; ++i) {
        const auto g = static_cast<std::size_t>(i / groups.values);
        const double value =
            static_cast<double>(parts.scales[g]) * parts.integers[static_cast<std::size_t>(i)] +
            (groups.has_biases ? static_cast<double>(parts.biases[g]) : 0.0);
        ASSERT_EQ(static_cast<float>(value),
                  one.values[static_cast<std::size_t>(b * shape.values + i)])
            << b << ", " << i;
      }
    }
  }
}

// An exponent of 255 is no number in the standard; ggml takes it for a power of two like any other.
TEST(BlockCodec, TheLargestPowerOfMxfp4) {
  std::vector<std::byte> block(17, std::byte{0x11});
  block[0] = std::byte{255};
  std::vector<float> values(32);
  decode_blocks(BlockType::MXFP4, block.data(), 1, values.data());
  EXPECT_EQ(values[0], 0x1p127f);
}

}  // namespace
}  // namespace moeflux
