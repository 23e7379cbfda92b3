#include "convert/affine_quantizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "quant/codec.h"
#include "quant/weight_format.h"
#include "support/random.h"

namespace moeflux {
namespace {

struct Quantized {
  std::vector<std::byte> data, scales, biases;
  std::vector<float> decoded;
  SquaredError error;
};

Quantized quantize(const std::vector<float>& row, int bits, int group) {
  const auto cols = static_cast<std::int64_t>(row.size());
  Quantized q;
  q.data.resize(row.size() * static_cast<std::size_t>(bits) / 8);
  q.scales.resize(row.size() / static_cast<std::size_t>(group) * 2);
  q.biases = q.scales;
  q.error =
      quantize_affine_row(row, bits, group, {q.data.data(), q.scales.data(), q.biases.data()});
  const WeightView view{.format = {.kind = WeightKind::Affine,
                                   .bits = bits,
                                   .group = group,
                                   .scale_dtype = DType::BF16},
                        .rows = 1,
                        .cols = cols,
                        .data = q.data.data(),
                        .scales = q.scales.data(),
                        .biases = q.biases.data()};
  q.decoded.resize(row.size());
  decode_row(view, 0, q.decoded.data());
  return q;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(a[i]), 2);
  }
  return std::sqrt(error / norm);
}

// The simplest quantizer: the range of the group divided evenly, nothing rounded to BF16.
double plain_error(const std::vector<float>& row, int bits, std::size_t group) {
  std::vector<float> decoded(row.size());
  for (std::size_t at = 0; at < row.size(); at += group) {
    const auto begin = row.begin() + static_cast<std::ptrdiff_t>(at);
    const auto [low, high] = std::minmax_element(begin, begin + static_cast<std::ptrdiff_t>(group));
    const float scale = (*high - *low) / static_cast<float>((1 << bits) - 1);
    for (std::size_t i = at; i < at + group; ++i) {
      decoded[i] = std::nearbyint((row[i] - *low) / scale) * scale + *low;
    }
  }
  return relative_error(row, decoded);
}

std::vector<float> normal_row(std::uint64_t seed, std::size_t n) {
  test::Random random(seed);
  std::vector<float> row(n);
  for (float& value : row) {
    const double u = std::max(random.uniform(), 1e-12), v = random.uniform();
    value =
        static_cast<float>(0.02 * std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
  }
  return row;
}

TEST(AffineQuantizer, Bf16RoundsToNearestTiesToEven) {
  EXPECT_EQ(float_to_bf16(1.0f), 0x3F80);
  EXPECT_EQ(float_to_bf16(-2.0f), 0xC000);
  EXPECT_EQ(float_to_bf16(0x1.01p0f), 0x3F80);    // half of the last bit, down to even
  EXPECT_EQ(float_to_bf16(0x1.03p0f), 0x3F82);    // half, up to even
  EXPECT_EQ(float_to_bf16(0x1.0101p0f), 0x3F81);  // above half
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::infinity()), 0x7F80);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::nanf("")))));
}

TEST(AffineQuantizer, WhatFitsIsExact) {
  test::Random random(3);
  for (const int bits : {2, 3, 4, 5, 6}) {
    for (const int group : {32, 64, 128}) {
      std::vector<float> row(256);
      for (std::size_t i = 0; i < row.size(); ++i) {
        // Every group uses its first and last code.
        const std::int64_t last = (1 << bits) - 1;
        const std::int64_t code = i % 32 == 0 ? 0 : i % 32 == 1 ? last : random.integer(0, last);
        row[i] = 0.0078125f * static_cast<float>(code) - 0.25f;
      }
      const Quantized q = quantize(row, bits, group);
      EXPECT_EQ(q.decoded, row) << bits << " bits";
      EXPECT_EQ(q.error.error, 0);
    }
  }
}

TEST(AffineQuantizer, ConstantsAndZeros) {
  const Quantized zero = quantize(std::vector<float>(64, 0.0f), 2, 64);
  EXPECT_EQ(zero.decoded, std::vector<float>(64, 0.0f));
  EXPECT_EQ(zero.error.relative(), 0);
  for (const float value : {0.1f, -3.14159f, 1e-30f, 1e15f, 0.5f}) {
    const Quantized q = quantize(std::vector<float>(64, value), 4, 64);
    EXPECT_NEAR(q.decoded[5] / value, 1, 2e-5) << value;
  }
}

TEST(AffineQuantizer, ReportsTheErrorOfWhatIsStored) {
  for (const int bits : {2, 3, 4, 8}) {
    const std::vector<float> row = normal_row(7, 2048);
    const Quantized q = quantize(row, bits, 64);
    EXPECT_NEAR(q.error.relative(), relative_error(row, q.decoded), 1e-6);
  }
}

TEST(AffineQuantizer, ErrorsAreSaneAndFallWithBits) {
  const std::vector<float> row = normal_row(11, 1 << 15);
  double last = 1;
  const struct {
    int bits;
    double low, high;
  } expected[] = {{2, 0.20, 0.33},  {3, 0.10, 0.17},  {4, 0.05, 0.085},
                  {5, 0.02, 0.045}, {6, 0.01, 0.022}, {8, 0.002, 0.008}};
  for (const auto& e : expected) {
    const double error = quantize(row, e.bits, 64).error.relative();
    EXPECT_GT(error, e.low) << e.bits << " bits";
    EXPECT_LT(error, e.high) << e.bits << " bits";
    EXPECT_LT(error, last);
    last = error;
  }
  // Smaller groups fit better.
  EXPECT_LT(quantize(row, 3, 32).error.relative(), quantize(row, 3, 64).error.relative());
  EXPECT_LT(quantize(row, 3, 64).error.relative(), quantize(row, 3, 128).error.relative());
}

TEST(AffineQuantizer, BeatsEvenDivision) {
  const std::vector<float> row = normal_row(13, 1 << 15);
  EXPECT_LT(quantize(row, 2, 64).error.relative(), 0.75 * plain_error(row, 2, 64));
  EXPECT_LT(quantize(row, 3, 64).error.relative(), 0.90 * plain_error(row, 3, 64));
  EXPECT_LT(quantize(row, 4, 64).error.relative(), 1.00 * plain_error(row, 4, 64));
  EXPECT_LT(quantize(row, 8, 64).error.relative(), 1.35 * plain_error(row, 8, 64));
}

TEST(AffineQuantizer, ExtremeValuesStayFinite) {
  test::Random random(5);
  std::vector<float> row(128);
  for (float& value : row) value = random.between(-1e-3, 1e-3);
  row[3] = 3e38f;
  row[70] = -1e-42f;
  row[100] = 3e38f;
  row[101] = -3e38f;
  for (const int bits : {2, 4, 8}) {
    for (const float value : quantize(row, bits, 64).decoded) EXPECT_TRUE(std::isfinite(value));
  }
  std::vector<float> tiny(64, 1e-42f);
  tiny[0] = -1e-42f;
  for (const float value : quantize(tiny, 4, 64).decoded) EXPECT_LE(std::abs(value), 2e-42f);
}

// Groups for which no scale can be stored: all but equal values near zero, or a range beyond the
// largest number.
TEST(AffineQuantizer, ExtremeRangesStayFinite) {
  for (const int bits : {2, 4, 8}) {
    std::vector<float> tiny(64, 0.0f), wide(64, 1e38f), both(64, 0.0f);
    tiny[3] = 1e-40f;
    tiny[9] = -3e-41f;
    wide[0] = -3e38f;
    wide[63] = 3.4e38f;
    both[1] = 1e-39f;
    both[2] = 0.5f;
    const Quantized small = quantize(tiny, bits, 64), large = quantize(wide, bits, 64);
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_NEAR(small.decoded[i], tiny[i], 2e-40f) << bits << " " << i;
      EXPECT_TRUE(std::isfinite(large.decoded[i])) << bits << " " << i;
    }
    EXPECT_FALSE(std::isnan(large.error.error));
    EXPECT_NEAR(quantize(both, bits, 64).decoded[2], 0.5f, 0.01f);
    // Nothing that was in memory before gets into the result.
    EXPECT_EQ(quantize(tiny, bits, 64).data, small.data);
  }
}

}  // namespace
}  // namespace moeflux
