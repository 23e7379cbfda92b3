#include "convert/block_quantizer.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "quant/block_codec.h"
#include "quant/codec.h"
#include "support/random.h"

namespace moeflux {
namespace {

constexpr BlockType kTypes[] = {BlockType::Q8_0, BlockType::Q4_K, BlockType::Q6_K};

std::vector<float> bell_row(std::uint64_t seed, std::size_t n) {
  test::Random random(seed);
  std::vector<float> row(n);
  for (float& value : row) {
    const double u = std::max(random.uniform(), 1e-12), v = random.uniform();
    value =
        static_cast<float>(0.02 * std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
  }
  return row;
}

struct QuantizedBlocks {
  std::vector<float> values;
  SquaredError error;
};

QuantizedBlocks quantize_blocks(const std::vector<float>& row, BlockType type,
                                const std::vector<float>& importance = {}) {
  const BlockShape shape = block_shape(type);
  const auto n = static_cast<std::int64_t>(row.size()) / shape.values;
  std::vector<std::byte> blocks(static_cast<std::size_t>(n * shape.bytes));
  QuantizedBlocks result;
  result.error = quantize_block_row(row, type, importance, blocks.data());
  result.values.resize(row.size());
  decode_blocks(type, blocks.data(), n, result.values.data());
  return result;
}

double weighted_error(const std::vector<float>& row, const std::vector<float>& values,
                      const std::vector<float>& weights) {
  double error = 0;
  for (std::size_t i = 0; i < row.size(); ++i)
    error += weights[i] * std::pow(static_cast<double>(row[i]) - values[i], 2);
  return error;
}

TEST(BlockQuantizer, HalvesRoundToNearestTiesToEven) {
  for (unsigned bits = 0; bits < 0x7C00; ++bits) {
    const float value = f16_to_float(static_cast<std::uint16_t>(bits));
    const float next = f16_to_float(static_cast<std::uint16_t>(bits + 1));
    EXPECT_EQ(float_to_f16(value), bits);
    EXPECT_EQ(float_to_f16(-value), bits | 0x8000);
    if (bits + 1 == 0x7C00) break;
    const double middle = (static_cast<double>(value) + next) / 2;
    EXPECT_EQ(float_to_f16(static_cast<float>(middle)), bits + (bits & 1));
    EXPECT_EQ(float_to_f16(std::nextafter(static_cast<float>(middle), 1e9f)), bits + 1);
    EXPECT_EQ(float_to_f16(std::nextafter(static_cast<float>(middle), 0.0f)), bits);
  }
  EXPECT_EQ(float_to_f16(65519.99f), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_f16(-INFINITY), 0xFC00);
  EXPECT_EQ(float_to_f16(NAN) & 0x7C00, 0x7C00);
  EXPECT_NE(float_to_f16(NAN) & 0x3FF, 0);
}

// What the types leave of a normal distribution; a range divided evenly would lose 1.15 to 1.3
// times as much in 4 and 6 bits.
TEST(BlockQuantizer, ErrorsOfANormalDistribution) {
  const std::vector<float> row = bell_row(1, 256 * 40);
  const double most[] = {0.0056, 0.071, 0.0176};
  for (std::size_t i = 0; i < std::size(kTypes); ++i) {
    const QuantizedBlocks q = quantize_blocks(row, kTypes[i]);
    const std::vector<float> ones(row.size(), 1.0f);
    const std::vector<float> zeros(row.size(), 0.0f);
    const double relative =
        std::sqrt(weighted_error(row, q.values, ones) / weighted_error(row, zeros, ones));
    EXPECT_NEAR(q.error.relative(), relative, 1e-6);
    EXPECT_LT(relative, most[i]) << block_type_name(kTypes[i]);
  }
}

TEST(BlockQuantizer, WhatABlockCanHoldStaysWithinItsScales) {
  test::Random random(2);
  for (const BlockType type : kTypes) {
    // Codes times a power of two, with the largest codes in every group.
    std::vector<float> row(256);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const int low = type == BlockType::Q8_0 ? -127 : type == BlockType::Q6_K ? -32 : 0;
      const int high = type == BlockType::Q8_0 ? 127 : type == BlockType::Q6_K ? 31 : 15;
      const std::int64_t code = i % 16 == 0 ? low : i % 16 == 1 ? high : random.integer(low, high);
      row[i] = static_cast<float>(code) * 0.125f;
    }
    const QuantizedBlocks q = quantize_blocks(row, type);
    EXPECT_LT(q.error.relative(), 2e-3) << block_type_name(type);
  }
}

TEST(BlockQuantizer, OddRows) {
  test::Random random(3);
  for (const BlockType type : kTypes) {
    SCOPED_TRACE(block_type_name(type));
    const auto error = [&](const std::vector<float>& row) {
      const QuantizedBlocks q = quantize_blocks(row, type);
      for (const float value : q.values) EXPECT_TRUE(std::isfinite(value));
      return q.error.relative();
    };
    EXPECT_EQ(error(std::vector<float>(256, 0.0f)), 0);
    EXPECT_LT(error(std::vector<float>(256, 0.5f)), 2e-3);
    EXPECT_LT(error(std::vector<float>(256, -0.5f)), 2e-3);
    std::vector<float> one(256, 0.0f);
    one[77] = 3;
    EXPECT_LT(error(one), 5e-3);
    one[200] = -3;
    EXPECT_LT(error(one), 5e-3);
    std::vector<float> tiny = bell_row(4, 256);
    for (float& value : tiny) value *= 1e-36f;
    EXPECT_LE(error(tiny), 1.0 + 1e-6);
    std::vector<float> large = bell_row(5, 256);
    for (float& value : large) value *= 1e7f;
    EXPECT_LE(error(large), 1.0 + 1e-6);
    std::vector<float> positive = bell_row(6, 256);
    for (float& value : positive) value = std::abs(value);
    EXPECT_LT(error(positive), type == BlockType::Q4_K ? 0.06 : 0.02);
  }
}

TEST(BlockQuantizer, ImportantColumnsLoseLess) {
  const std::vector<float> row = bell_row(7, 256 * 8);
  test::Random random(8);
  std::vector<float> importance(row.size());
  for (float& value : importance) value = static_cast<float>(std::pow(10.0, random.between(-3, 1)));
  for (const BlockType type : {BlockType::Q4_K, BlockType::Q6_K}) {
    const double with =
        weighted_error(row, quantize_blocks(row, type, importance).values, importance);
    const double without = weighted_error(row, quantize_blocks(row, type).values, importance);
    EXPECT_LT(with, 0.8 * without) << block_type_name(type);
  }
  // All alike, or none at all, is no importance.
  for (const float same : {0.0f, 1e-30f, 1e6f}) {
    const std::vector<float> alike(row.size(), same);
    EXPECT_EQ(quantize_blocks(row, BlockType::Q4_K, alike).values,
              quantize_blocks(row, BlockType::Q4_K).values);
  }
}

}  // namespace
}  // namespace moeflux
