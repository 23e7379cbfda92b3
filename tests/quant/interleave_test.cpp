#include "quant/interleave.h"

#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "quant/codec.h"

namespace moeflux {
namespace {

constexpr DType kScaleTypes[] = {DType::F32, DType::F16, DType::BF16};

// Three planes of a matrix, one after the other at an odd address, with guards around each.
class Matrix {
 public:
  Matrix(const WeightFormat& format, std::int64_t rows, std::int64_t cols)
      : format_(format),
        rows_(rows),
        cols_(cols),
        data_bytes_(rows * data_row_bytes(format, cols)),
        plane_bytes_(rows * scales_per_row(format, cols) *
                     static_cast<std::int64_t>(dtype_size(format.scale_dtype))),
        bytes_(static_cast<std::size_t>(data_bytes_ + plane_bytes_ +
                                        bias_bytes(format, rows, cols) + 4)) {
    std::mt19937 random(static_cast<unsigned>(rows * 1000 + cols + format.bits));
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random() & 0x3F);  // no NaN
  }

  WeightView view() const {
    const std::byte* data = bytes_.data() + 1;
    const std::byte* scales = data + data_bytes_ + 1;
    return {.format = format_,
            .rows = rows_,
            .cols = cols_,
            .data = data,
            .scales = scales,
            .biases = has_biases(format_) ? scales + plane_bytes_ + 1 : nullptr};
  }
  void arrange() {
    std::vector<std::byte> scratch(tile_scratch_bytes(format_, cols_));
    for (std::int64_t i = 0; i < n_tiles(rows_); ++i) arrange_tile(view(), i, scratch);
    format_ = arranged(format_, !format_.is_interleaved);
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  WeightFormat format_;
  std::int64_t rows_, cols_, data_bytes_, plane_bytes_;
  std::vector<std::byte> bytes_;
};

// Calls visit(a matrix in rows) for every width of codes, type of scales and kind of zero, E2M1
// numbers, and 1 to 40 rows.
template <class Visit>
void for_each_matrix(const Visit& visit) {
  const auto visit_rows = [&](const WeightFormat& format) {
    for (std::int64_t rows = 1; rows <= 40; ++rows) {
      SCOPED_TRACE(testing::Message() << describe(format) << ", " << dtype_name(format.scale_dtype)
                                      << ", " << rows << " rows");
      const std::int64_t odd = format.group == 16 ? 80 : 96;
      visit(Matrix(format, rows, rows % 3 == 0 ? 128 : odd));
    }
  };
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const DType scale_dtype : kScaleTypes) {
      WeightFormat format{WeightKind::Affine, bits, 32, 0, scale_dtype};
      for (const AffineZero zero : {AffineZero::Bias, AffineZero::MidCode, AffineZero::ZeroPoint}) {
        format.zero = zero;
        if (zero == AffineZero::Bias || bits % 4 == 0) visit_rows(format);
      }
    }
  }
  visit_rows({.kind = WeightKind::Fp4, .group = 32, .scale_dtype = DType::U8});
  for (const bool has_tensor_scale : {false, true}) {
    visit_rows({.kind = WeightKind::Fp4,
                .group = 16,
                .scale_dtype = DType::F8E4M3,
                .has_tensor_scale = has_tensor_scale});
  }
}

TEST(Interleave, OnlyMatricesWithGroupsHaveThem) {
  for (const WeightKind kind :
       {WeightKind::F32, WeightKind::F16, WeightKind::BF16, WeightKind::Fp8Block}) {
    EXPECT_FALSE(arranged({.kind = kind}, true).is_interleaved);
  }
  const WeightFormat affine{WeightKind::Affine, 4, 64, 0, DType::BF16};
  EXPECT_TRUE(arranged(affine, true).is_interleaved);
  EXPECT_EQ(arranged(arranged(affine, true), false), affine);
  EXPECT_FALSE(arranged({.kind = WeightKind::Affine, .bits = 4, .group = 48}, true).is_interleaved);
  EXPECT_TRUE(arranged({.kind = WeightKind::Fp4, .group = 16}, true).is_interleaved);
}

TEST(Interleave, TheLastOneMayBeShort) {
  EXPECT_EQ(n_tiles(1), 1);
  EXPECT_EQ(n_tiles(16), 1);
  EXPECT_EQ(n_tiles(17), 2);
  EXPECT_EQ(n_tiles(32), 2);
}

TEST(Interleave, FromRowsAndBackChangesNothing) {
  for_each_matrix([](Matrix matrix) {
    const std::vector<std::byte> before = matrix.bytes();
    const std::int64_t rows = matrix.view().rows;
    matrix.arrange();
    EXPECT_EQ(matrix.view().format.is_interleaved, true);
    EXPECT_EQ(matrix.bytes() == before, rows == 1);  // a tile of one row is that row
    matrix.arrange();
    EXPECT_EQ(matrix.view().format.is_interleaved, false);
    EXPECT_TRUE(matrix.bytes() == before);
  });
}

TEST(Interleave, RowsDecodeToTheSameNumbers) {
  for_each_matrix([](const Matrix& in_rows) {
    Matrix is_interleaved = in_rows;
    is_interleaved.arrange();
    const WeightView rows = in_rows.view(), tiles = is_interleaved.view();
    std::vector<float> want(static_cast<std::size_t>(rows.cols)), got(want.size());
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      decode_row(rows, r, want.data());
      decode_row(tiles, r, got.data());
      EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0) << r;
    }
  });
}

// 18 rows of 32 codes of 4 bits in one group: 4 dwords, a scale and a bias each.
TEST(Interleave, TheOrderIsAsDefined) {
  constexpr std::int64_t kRows = 18, kDwords = 4;
  std::vector<std::uint32_t> data;
  std::vector<std::uint16_t> scales, biases;
  for (std::uint32_t r = 0; r < kRows; ++r) {
    for (std::uint32_t c = 0; c < kDwords; ++c) data.push_back(1000 * r + c);
    scales.push_back(static_cast<std::uint16_t>(r));
    biases.push_back(static_cast<std::uint16_t>(100 + r));
  }
  const WeightView matrix{.format = {WeightKind::Affine, 4, 32, 0, DType::BF16},
                          .rows = kRows,
                          .cols = 32,
                          .data = std::as_bytes(std::span(data)).data(),
                          .scales = std::as_bytes(std::span(scales)).data(),
                          .biases = std::as_bytes(std::span(biases)).data()};
  const std::vector<std::uint16_t> one_group = scales;
  std::vector<std::byte> scratch(tile_scratch_bytes(matrix.format, matrix.cols));
  arrange_tile(matrix, 1, scratch);
  EXPECT_EQ(data[16 * kDwords - 1], 15003u);  // the other tile is as it was
  arrange_tile(matrix, 0, scratch);
  for (std::uint32_t c = 0; c < kDwords; ++c) {
    for (std::uint32_t r = 0; r < 16; ++r) EXPECT_EQ(data[c * 16 + r], 1000 * r + c);
    for (std::uint32_t r = 0; r < 2; ++r) {
      EXPECT_EQ(data[16 * kDwords + c * 2 + r], 1000 * (16 + r) + c);
    }
  }
  EXPECT_EQ(scales, one_group);  // a column is its own turn
}

// 3 rows of two groups.
TEST(Interleave, ScalesAreTurnedLikeCodes) {
  std::vector<std::uint32_t> data(3 * 8);
  std::vector<float> scales{0, 1, 10, 11, 20, 21}, biases{5, 6, 15, 16, 25, 26};
  const WeightView matrix{.format = {WeightKind::Affine, 4, 32, 0, DType::F32},
                          .rows = 3,
                          .cols = 64,
                          .data = std::as_bytes(std::span(data)).data(),
                          .scales = std::as_bytes(std::span(scales)).data(),
                          .biases = std::as_bytes(std::span(biases)).data()};
  std::vector<std::byte> scratch(tile_scratch_bytes(matrix.format, matrix.cols));
  arrange_tile(matrix, 0, scratch);
  EXPECT_EQ(scales, (std::vector<float>{0, 10, 20, 1, 11, 21}));
  EXPECT_EQ(biases, (std::vector<float>{5, 15, 25, 6, 16, 26}));
}

// 3 rows of two groups, in rows and in a tile; what is one for all rows stays.
TEST(Interleave, ScalesAndZeroPointsOfAByte) {
  std::vector<std::uint32_t> data(3 * 8);
  std::vector<std::uint8_t> scales{0, 1, 10, 11, 20, 21}, others{5, 6, 15, 16, 25, 26};
  WeightView matrix{.format = {.kind = WeightKind::Fp4,
                               .group = 32,
                               .scale_dtype = DType::U8,
                               .has_tensor_scale = true},
                    .rows = 3,
                    .cols = 64,
                    .data = std::as_bytes(std::span(data)).data(),
                    .scales = std::as_bytes(std::span(scales)).data(),
                    .biases = std::as_bytes(std::span(others)).data()};
  std::vector<std::byte> scratch(tile_scratch_bytes(matrix.format, matrix.cols));
  arrange_tile(matrix, 0, scratch);
  EXPECT_EQ(scales, (std::vector<std::uint8_t>{0, 10, 20, 1, 11, 21}));
  EXPECT_EQ(others, (std::vector<std::uint8_t>{5, 6, 15, 16, 25, 26}));

  std::vector<float> floats(6);
  matrix.format = {.kind = WeightKind::Affine,
                   .bits = 4,
                   .group = 32,
                   .scale_dtype = DType::F32,
                   .zero = AffineZero::ZeroPoint};
  matrix.scales = std::as_bytes(std::span(floats)).data();
  scratch.resize(tile_scratch_bytes(matrix.format, matrix.cols));
  arrange_tile(matrix, 0, scratch);
  EXPECT_EQ(others, (std::vector<std::uint8_t>{5, 15, 25, 6, 16, 26}));
}

}  // namespace
}  // namespace moeflux
