#include "quant/weight_format.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

WeightFormat plain(WeightKind kind) {
  WeightFormat format;
  format.kind = kind;
  return format;
}

WeightFormat affine(int bits, int group) {
  return {.kind = WeightKind::Affine, .bits = bits, .group = group, .scale_dtype = DType::BF16};
}

WeightFormat fp8(int block) {
  return {.kind = WeightKind::Fp8Block, .block = block};
}

TEST(WeightFormat, RowBytes) {
  EXPECT_EQ(data_row_bytes(plain(WeightKind::F32), 10), 40);
  EXPECT_EQ(data_row_bytes(plain(WeightKind::F16), 10), 20);
  EXPECT_EQ(data_row_bytes(plain(WeightKind::BF16), 10), 20);
  EXPECT_EQ(data_row_bytes(affine(4, 64), 2048), 1024);
  EXPECT_EQ(data_row_bytes(affine(3, 32), 32), 12);
  EXPECT_EQ(data_row_bytes(fp8(128), 576), 576);
}

TEST(WeightFormat, RowsOfBlocks) {
  const auto of = [](BlockType type) {
    return WeightFormat{.kind = WeightKind::Block, .blocks = type};
  };
  EXPECT_EQ(data_row_bytes(of(BlockType::Q4_0), 64), 36);
  EXPECT_EQ(data_row_bytes(of(BlockType::Q8_0), 32), 34);
  EXPECT_EQ(data_row_bytes(of(BlockType::Q6_K), 512), 420);
  EXPECT_EQ(scales_per_row(of(BlockType::Q4_K), 256), 0);
  EXPECT_EQ(scale_bytes(of(BlockType::Q4_K), 3, 256, 0), 0);
  EXPECT_FALSE(has_biases(of(BlockType::Q4_1)));
  EXPECT_EQ(bias_bytes(of(BlockType::Q4_1), 3, 64), 0);
  EXPECT_EQ(describe(of(BlockType::Q4_K)), "q4_k");
  EXPECT_EQ(describe(of(BlockType::IQ2_XXS)), "iq2_xxs");
}

TEST(WeightFormat, ScalesPerRow) {
  EXPECT_EQ(scales_per_row(plain(WeightKind::BF16), 128), 0);
  EXPECT_EQ(scales_per_row(affine(4, 64), 128), 2);
  EXPECT_EQ(scales_per_row(fp8(128), 576), 5);
  EXPECT_EQ(scales_per_row(fp8(128), 128), 1);
}

TEST(WeightFormat, OnlyAffineHasBiases) {
  EXPECT_TRUE(has_biases(affine(4, 64)));
  EXPECT_FALSE(has_biases(fp8(128)));
  EXPECT_FALSE(has_biases(plain(WeightKind::F32)));
}

TEST(WeightFormat, Describe) {
  EXPECT_EQ(describe(plain(WeightKind::F32)), "f32");
  EXPECT_EQ(describe(plain(WeightKind::F16)), "f16");
  EXPECT_EQ(describe(plain(WeightKind::BF16)), "bf16");
  EXPECT_EQ(describe(affine(4, 64)), "affine 4-bit g64");
  EXPECT_EQ(describe(fp8(128)), "fp8 block 128");
}

}  // namespace
}  // namespace moeflux
