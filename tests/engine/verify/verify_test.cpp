#include "engine/verify/verify.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace moeflux {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(RowDifference, EqualRows) {
  const std::vector<float> rows{1, -2, 0, 0};
  const RowDifference d = compare_rows(rows, rows, 2);
  EXPECT_EQ(d.relative, 0);
  EXPECT_EQ(d.value, 0);
  EXPECT_EQ(d.max_abs, 0);
}

TEST(RowDifference, TheWorstRowCounts) {
  const std::vector<float> golden{1000, 0, 3, 4, 1000, 0};
  const std::vector<float> ours{1000, 0, 3, 4.5, 1000.5, 0};
  const RowDifference d = compare_rows(ours, golden, 2);
  EXPECT_DOUBLE_EQ(d.relative, 0.1);
  EXPECT_DOUBLE_EQ(d.value, 0.5 / std::sqrt(12.5));
  EXPECT_DOUBLE_EQ(d.max_abs, 0.5);
  EXPECT_EQ(d.row, 1);
  EXPECT_NEAR(d.cosine, 27.0 / (5 * std::hypot(3, 4.5)), 1e-12);
}

// One massive activation makes the row's norm say nothing about the other values.
TEST(RowDifference, AValueBesideAMassiveOne) {
  std::vector<float> golden(256, 1.0f);
  golden[7] = 3600;
  std::vector<float> ours = golden;
  ours[8] += 0.01f;
  const RowDifference d = compare_rows(ours, golden, 256);
  EXPECT_LT(d.relative, 3e-6);
  EXPECT_NEAR(d.value, 1e-4, 1e-7);
  ours = golden;
  ours[7] += 0.01f;  // three parts in a million of it
  EXPECT_NEAR(compare_rows(ours, golden, 256).value, 0.01 / 1800, 1e-6);
}

TEST(RowDifference, RowsOfZeros) {
  const std::vector<float> golden{0, 0, 1, 1};
  const std::vector<float> ours{0, 1e-3f, 1, 1};
  EXPECT_GT(compare_rows(ours, golden, 2).relative, 1);
  EXPECT_EQ(compare_rows(ours, golden, 2).row, 0);
}

TEST(RowDifference, NanIsFarFromEverything) {
  const std::vector<float> golden{1, 1, 1, 1};
  const std::vector<float> ours{1, 1, kNan, 1};
  for (const RowDifference& d : {compare_rows(ours, golden, 2), compare_rows(golden, ours, 2),
                                 compare_rows(ours, ours, 2)}) {
    EXPECT_EQ(d.relative, kInfinity);
    EXPECT_EQ(d.value, kInfinity);
    EXPECT_EQ(d.row, 1);
  }
}

}  // namespace
}  // namespace moeflux
