#include "model/stored_tensor.h"

#include <stdexcept>

#include <gtest/gtest.h>

namespace moeflux {
namespace {

void expect_extent(const Extent& got, std::uint64_t offset, std::uint64_t bytes) {
  EXPECT_EQ(got.offset, offset);
  EXPECT_EQ(got.bytes, bytes);
}

StoredMatrix affine_matrix() {  // [10, 128], 4-bit in groups of 64: 64 data bytes, 2 scales a row
  return {
      .name = "w",
      .format = {.kind = WeightKind::Affine, .bits = 4, .group = 64, .scale_dtype = DType::BF16},
      .rows = 10,
      .cols = 128,
      .data = {0, 1000, 640},
      .scales = {0, 5000, 40},
      .biases = {0, 6000, 40}};
}

StoredMatrix fp8_matrix() {  // [300, 200] in blocks of 128: scales [3, 2] of F32
  return {.name = "w",
          .format = {.kind = WeightKind::Fp8Block, .block = 128},
          .rows = 300,
          .cols = 200,
          .data = {2, 100, 60000},
          .scales = {2, 70000, 24}};
}

TEST(StoredMatrix, SlicePlain) {
  StoredMatrix matrix{.name = "w", .rows = 6, .cols = 3, .data = {1, 48, 72}};
  const StoredMatrix part = matrix.slice(2, 3);
  EXPECT_EQ(part.rows, 3);
  EXPECT_EQ(part.cols, 3);
  EXPECT_EQ(part.data.file, 1);
  expect_extent(part.data, 48 + 2 * 12, 36);
  expect_extent(part.scales, 0, 0);
}

TEST(StoredMatrix, SliceAffineTakesTheRowsOfEveryPlane) {
  const StoredMatrix part = affine_matrix().slice(4, 5);
  EXPECT_EQ(part.rows, 5);
  expect_extent(part.data, 1000 + 4 * 64, 5 * 64);
  expect_extent(part.scales, 5000 + 4 * 4, 5 * 4);
  expect_extent(part.biases, 6000 + 4 * 4, 5 * 4);
  EXPECT_EQ(part.bytes(), 5u * 72);
}

TEST(StoredMatrix, SliceFp8KeepsItsPlaceInTheBlock) {
  const StoredMatrix aligned = fp8_matrix().slice(128, 128);
  expect_extent(aligned.data, 100 + 128 * 200, 128 * 200);
  expect_extent(aligned.scales, 70008, 8);
  EXPECT_EQ(aligned.block_row0, 0);

  const StoredMatrix across = fp8_matrix().slice(120, 20);  // rows 120 to 139: blocks 0 and 1
  expect_extent(across.scales, 70000, 16);
  EXPECT_EQ(across.block_row0, 120);

  const StoredMatrix last = fp8_matrix().slice(260, 40);
  expect_extent(last.scales, 70016, 8);
  EXPECT_EQ(last.block_row0, 4);
}

TEST(StoredMatrix, SliceOfASlice) {
  const StoredMatrix part = fp8_matrix().slice(120, 100).slice(10, 90);  // rows 130 to 219
  expect_extent(part.data, 100 + 130 * 200, 90 * 200);
  expect_extent(part.scales, 70008, 8);
  EXPECT_EQ(part.block_row0, 2);
}

TEST(StoredMatrix, SliceOutsideIsOurBug) {
  EXPECT_THROW(affine_matrix().slice(8, 3), std::logic_error);
  EXPECT_THROW(affine_matrix().slice(-1, 3), std::logic_error);
  EXPECT_THROW(affine_matrix().slice(0, 0), std::logic_error);
}

TEST(StoredExpertBank, StackedAtFixedStrides) {
  const StoredExpertBank bank(affine_matrix(), {.data = 100000, .scales = 2000, .biases = 3000}, 4);
  EXPECT_EQ(bank.count(), 4);
  expect_extent(bank.at(0).data, 1000, 640);
  const StoredMatrix third = bank.at(3);
  expect_extent(third.data, 1000 + 300000, 640);
  expect_extent(third.scales, 5000 + 6000, 40);
  expect_extent(third.biases, 6000 + 9000, 40);
  EXPECT_THROW(bank.at(4), std::logic_error);
  EXPECT_THROW(bank.at(-1), std::logic_error);
}

TEST(StoredExpertBank, OneMatrixEach) {
  StoredMatrix second = affine_matrix();
  second.data.file = 7;
  const StoredExpertBank bank({affine_matrix(), second});
  EXPECT_EQ(bank.count(), 2);
  EXPECT_EQ(bank.at(0).data.file, 0);
  EXPECT_EQ(bank.at(1).data.file, 7);
  const StoredExpertBank lower = bank.slice(5, 5);
  EXPECT_EQ(lower.count(), 2);
  EXPECT_EQ(lower.at(1).data.file, 7);
  expect_extent(lower.at(1).data, 1000 + 5 * 64, 5 * 64);
}

TEST(StoredExpertBank, SliceOfAStackAppliesToEveryExpert) {
  const StoredExpertBank bank(fp8_matrix(), {.data = 60000, .scales = 24}, 3);
  const StoredMatrix upper = bank.slice(150, 150).at(2);
  EXPECT_EQ(upper.rows, 150);
  expect_extent(upper.data, 100 + 2 * 60000 + 150 * 200, 150 * 200);
  expect_extent(upper.scales, 70000 + 2 * 24 + 8, 16);
  EXPECT_EQ(upper.block_row0, 22);
}

TEST(StoredExpertBank, EmptyHasNoExperts) {
  EXPECT_EQ(StoredExpertBank().count(), 0);
}

}  // namespace
}  // namespace moeflux
