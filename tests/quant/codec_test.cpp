#include "quant/codec.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace moeflux {
namespace {

// A binary float of any width from its fields, in double arithmetic that shares nothing with the
// decoder: (-1)^s * 1.m * 2^(e - bias), or 0.m * 2^(1 - bias) when e is 0.
double from_fields(unsigned bits, int exponent_bits, int mantissa_bits) {
  const unsigned mantissa = bits & ((1u << mantissa_bits) - 1);
  const unsigned exponent = (bits >> mantissa_bits) & ((1u << exponent_bits) - 1);
  const bool negative = ((bits >> (mantissa_bits + exponent_bits)) & 1) != 0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double fraction = mantissa / std::pow(2.0, mantissa_bits);
  const double value = exponent == 0
                           ? fraction * std::pow(2.0, 1 - bias)
                           : (1 + fraction) * std::pow(2.0, static_cast<int>(exponent) - bias);
  return negative ? -value : value;
}

void expect_same(float got, double want, unsigned code) {
  EXPECT_EQ(static_cast<double>(got), want) << "code " << code;
  EXPECT_EQ(std::signbit(got), std::signbit(want)) << "code " << code;
}

// With infinities and NaN at the top exponent, as IEEE has them.
void check_ieee(float got, unsigned code, int exponent_bits, int mantissa_bits) {
  const unsigned top = (1u << exponent_bits) - 1;
  if (((code >> mantissa_bits) & top) != top) {
    expect_same(got, from_fields(code, exponent_bits, mantissa_bits), code);
  } else if ((code & ((1u << mantissa_bits) - 1)) == 0) {
    EXPECT_TRUE(std::isinf(got)) << code;
    EXPECT_EQ(std::signbit(got), (code >> 15) != 0) << code;
  } else {
    EXPECT_TRUE(std::isnan(got)) << code;
  }
}

TEST(Codec, EveryBf16) {
  for (unsigned code = 0; code < 65536; ++code) {
    check_ieee(bf16_to_float(static_cast<std::uint16_t>(code)), code, 8, 7);
  }
}

TEST(Codec, EveryF16) {
  for (unsigned code = 0; code < 65536; ++code) {
    check_ieee(f16_to_float(static_cast<std::uint16_t>(code)), code, 5, 10);
  }
}

TEST(Codec, EveryF8) {
  for (unsigned code = 0; code < 256; ++code) {
    const float got = f8e4m3_to_float(static_cast<std::uint8_t>(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(got)) << code;
    } else {
      expect_same(got, from_fields(code, 4, 3), code);
    }
  }
  EXPECT_EQ(f8e4m3_to_float(0x7E), 448.0f);
}

TEST(Codec, DecodesFloatsFromUnalignedMemory) {
  const std::vector<float> values{1.5f, -2.25f, 1e-30f};
  std::vector<std::byte> bytes(1 + values.size() * 4);
  std::memcpy(bytes.data() + 1, values.data(), values.size() * 4);
  std::vector<float> out(values.size());
  decode_floats(DType::F32, bytes.data() + 1, 3, out.data());
  EXPECT_EQ(out, values);

  const std::uint16_t halves[] = {0x3C00, 0xC500};  // 1, -5
  std::memcpy(bytes.data() + 1, halves, sizeof halves);
  decode_floats(DType::F16, bytes.data() + 1, 2, out.data());
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -5.0f);
}

// Bytes behind an odd address: no plane of a matrix may be assumed to be aligned.
class Unaligned {
 public:
  explicit Unaligned(std::size_t size) : bytes_(size + 1) {}
  std::byte* data() { return bytes_.data() + 1; }
  std::size_t size() const { return bytes_.size() - 1; }

 private:
  std::vector<std::byte> bytes_;
};

void store_scale(DType dtype, float value, std::byte* at) {
  if (dtype == DType::F32) {
    std::memcpy(at, &value, 4);
  } else {  // the values used here are exact in BF16
    const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
    std::memcpy(at, &bits, 2);
  }
}

// Code c of a row by looking at one bit after the other.
unsigned naive_code(const std::byte* row, std::int64_t c, int bits) {
  unsigned code = 0;
  for (int b = 0; b < bits; ++b) {
    const std::int64_t at = c * bits + b;
    const unsigned byte = std::to_integer<unsigned>(row[at / 8]);
    code |= ((byte >> (at % 8)) & 1u) << b;
  }
  return code;
}

using AffineCase = std::tuple<int, int, DType>;
class AffineCodec : public testing::TestWithParam<AffineCase> {};

TEST_P(AffineCodec, MatchesNaiveDecoder) {
  const auto [bits, group, dtype] = GetParam();
  const WeightFormat format{
      .kind = WeightKind::Affine, .bits = bits, .group = group, .scale_dtype = dtype};
  constexpr std::int64_t kRows = 5;
  const std::int64_t cols = 3 * group;
  const auto scale_size = static_cast<std::int64_t>(dtype_size(dtype));
  Unaligned data(static_cast<std::size_t>(kRows * data_row_bytes(format, cols)));
  Unaligned scales(static_cast<std::size_t>(kRows * 3 * scale_size));
  Unaligned biases(scales.size());
  std::mt19937 random(static_cast<unsigned>(bits * 1000 + group));
  for (std::size_t i = 0; i < data.size(); ++i) data.data()[i] = std::byte(random() & 0xFF);
  const auto scale_of = [](std::int64_t i) {  // every second one negative
    return (i % 2 == 0 ? -1.0f : 1.0f) * static_cast<float>(i + 1) / 16;
  };
  const auto bias_of = [](std::int64_t i) { return static_cast<float>(i - 7) / 4; };
  for (std::int64_t i = 0; i < kRows * 3; ++i) {
    store_scale(dtype, scale_of(i), scales.data() + i * scale_size);
    store_scale(dtype, bias_of(i), biases.data() + i * scale_size);
  }
  const WeightView view{.format = format,
                        .rows = kRows,
                        .cols = cols,
                        .data = data.data(),
                        .scales = scales.data(),
                        .biases = biases.data()};
  std::vector<float> out(static_cast<std::size_t>(cols));
  for (std::int64_t r = 0; r < kRows; ++r) {
    decode_row(view, r, out.data());
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t g = r * 3 + c / group;
      const auto code = static_cast<float>(naive_code(data.data() + r * cols * bits / 8, c, bits));
      ASSERT_EQ(out[static_cast<std::size_t>(c)], scale_of(g) * code + bias_of(g))
          << "row " << r << " column " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AffineCodec,
                         testing::Combine(testing::Values(2, 3, 4, 5, 6, 8),
                                          testing::Values(32, 64, 128),
                                          testing::Values(DType::F32, DType::BF16)),
                         [](const auto& test) {
                           return fmt::format("b{}g{}{}", std::get<0>(test.param),
                                              std::get<1>(test.param),
                                              dtype_name(std::get<2>(test.param)));
                         });

TEST(Codec, PlainRows) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  WeightView view{.rows = 2, .cols = 3, .data = std::as_bytes(std::span(values)).data()};
  std::vector<float> out(3);
  decode_row(view, 1, out.data());
  EXPECT_EQ(out, (std::vector<float>{4, 5, 6}));

  const std::uint16_t bf16[] = {0x3F80, 0x4000, 0x4040, 0xBF80};  // 1 2 3 -1
  view = {.format = {.kind = WeightKind::BF16},
          .rows = 2,
          .cols = 2,
          .data = std::as_bytes(std::span(bf16)).data()};
  decode_row(view, 1, out.data());
  EXPECT_EQ(out[0], 3.0f);
  EXPECT_EQ(out[1], -1.0f);

  const std::uint16_t f16[] = {0x3C00, 0x4000, 0x4200, 0xBC00};
  view.format.kind = WeightKind::F16;
  view.data = std::as_bytes(std::span(f16)).data();
  decode_row(view, 0, out.data());
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 2.0f);
}

// A 5 x 7 matrix in blocks of 3, so that the last block of a row and of a column is partial.
struct RaggedFp8 {
  static constexpr std::int64_t kRows = 5, kCols = 7, kBlock = 3;
  Unaligned data{kRows * kCols};
  std::vector<float> scales{0.5f, 2, -4, 8, 16, 32};  // [2, 3]

  RaggedFp8() {
    for (std::size_t i = 0; i < data.size(); ++i) data.data()[i] = std::byte(0x20 + i);
  }
  WeightView view() {
    return {.format = {.kind = WeightKind::Fp8Block, .block = kBlock},
            .rows = kRows,
            .cols = kCols,
            .data = data.data(),
            .scales = std::as_bytes(std::span(scales)).data()};
  }
  double want(std::int64_t r, std::int64_t c) const {
    const auto code = static_cast<unsigned>(0x20 + r * kCols + c);
    return from_fields(code, 4, 3) *
           static_cast<double>(scales[static_cast<std::size_t>(r / kBlock * 3 + c / kBlock)]);
  }
};

TEST(Codec, Fp8RaggedBlocks) {
  RaggedFp8 matrix;
  std::vector<float> out(RaggedFp8::kCols);
  for (std::int64_t r = 0; r < RaggedFp8::kRows; ++r) {
    decode_row(matrix.view(), r, out.data());
    for (std::int64_t c = 0; c < RaggedFp8::kCols; ++c) {
      EXPECT_EQ(static_cast<double>(out[static_cast<std::size_t>(c)]), matrix.want(r, c));
    }
  }
}

TEST(Codec, Fp8RowSliceInsideABlock) {
  RaggedFp8 matrix;
  WeightView slice = matrix.view();  // rows 2 to 4: one row of block 0, then block 1
  slice.data += 2 * RaggedFp8::kCols;
  slice.rows = 3;
  slice.block_row0 = 2;
  std::vector<float> out(RaggedFp8::kCols);
  for (std::int64_t r = 0; r < slice.rows; ++r) {
    decode_row(slice, r, out.data());
    for (std::int64_t c = 0; c < RaggedFp8::kCols; ++c) {
      EXPECT_EQ(static_cast<double>(out[static_cast<std::size_t>(c)]), matrix.want(r + 2, c));
    }
  }
}

}  // namespace
}  // namespace moeflux
