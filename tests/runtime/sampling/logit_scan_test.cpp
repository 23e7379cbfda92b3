#include "runtime/sampling/logit_scan.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "runtime/sampling/counter_rng.h"

namespace moeflux {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Few distinct values, so that ties are everywhere, with NaN and infinities among them.
std::vector<float> coarse_logits(std::size_t n, std::uint64_t seed) {
  std::vector<float> logits(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t r = scale_to(random_bits(seed, i), 40);
    logits[i] = r == 0 ? kNan : r == 1 ? -kInfinity : static_cast<float>(r) * 0.25f - 5.0f;
  }
  return logits;
}

std::vector<TokenId> ids_of(std::vector<Candidate> candidates) {
  std::sort(candidates.begin(), candidates.end(), more_likely);
  std::vector<TokenId> ids;
  for (const Candidate& c : candidates) ids.push_back(c.id);
  return ids;
}

// All finite candidates, most likely first, by sorting everything.
std::vector<TokenId> ranking(const std::vector<float>& logits) {
  std::vector<Candidate> all;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -kInfinity) all.push_back({logits[i], static_cast<TokenId>(i), 0});
  }
  return ids_of(all);
}

TEST(LogitScan, LargestIsTheLowestIdOfEquals) {
  EXPECT_EQ(index_of_largest(std::vector<float>{1, 3, 2, 3}), 1u);
  EXPECT_EQ(index_of_largest(std::vector<float>{0.0f, -0.0f}), 0u);
  EXPECT_EQ(index_of_largest(std::vector<float>{-0.0f, 0.0f}), 0u);
  std::vector<float> equal(5000, -7.0f);
  EXPECT_EQ(index_of_largest(equal), 0u);
  equal[4999] = -6.5f;
  EXPECT_EQ(index_of_largest(equal), 4999u);
  equal[3000] = -6.5f;
  EXPECT_EQ(index_of_largest(equal), 3000u);
}

TEST(LogitScan, NanAndMinusInfinityAreNeverTheLargest) {
  EXPECT_EQ(index_of_largest(std::vector<float>{kNan, -5, kNan, -4, -kInfinity}), 3u);
  EXPECT_EQ(index_of_largest(std::vector<float>{1, kInfinity, 2}), 1u);
  EXPECT_EQ(index_of_largest(std::vector<float>{kNan, -kInfinity}), kNoIndex);
  EXPECT_EQ(index_of_largest(std::vector<float>(3000, kNan)), kNoIndex);
  EXPECT_EQ(index_of_largest({}), kNoIndex);
}

TEST(LogitScan, LargestAgreesWithSortingAtEverySize) {
  for (std::size_t n = 1; n < 200; ++n) {
    const std::vector<float> logits = coarse_logits(n, n);
    const std::vector<TokenId> expected = ranking(logits);
    const std::size_t index = index_of_largest(logits);
    if (expected.empty()) {
      EXPECT_EQ(index, kNoIndex);
    } else {
      EXPECT_EQ(index, static_cast<std::size_t>(expected.front())) << n;
    }
  }
}

TEST(LogitScan, SelectLargestAgreesWithSorting) {
  std::vector<Candidate> selected;
  for (const std::size_t n : {1, 63, 64, 65, 1000, 20000}) {
    const std::vector<float> logits = coarse_logits(n, n);
    const std::vector<TokenId> expected = ranking(logits);
    for (const std::size_t k : {0, 1, 2, 20, 300, 5000, 30000}) {
      select_largest(logits, k, selected);
      const auto end = expected.begin() + static_cast<std::ptrdiff_t>(std::min(k, expected.size()));
      EXPECT_EQ(ids_of(selected), std::vector<TokenId>(expected.begin(), end)) << n << " " << k;
    }
  }
}

TEST(LogitScan, SelectLargestOfRisingLogits) {
  std::vector<float> rising(10000);
  for (std::size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<float>(i);
  std::vector<Candidate> selected;
  select_largest(rising, 3, selected);
  EXPECT_EQ(ids_of(selected), (std::vector<TokenId>{9999, 9998, 9997}));
}

TEST(LogitScan, SelectAboveKeepsIdOrderAndExcludesTheFloor) {
  std::vector<Candidate> selected(7);
  select_above(std::vector<float>{2, kNan, 1, 3, -kInfinity, 2}, 1.0f, selected);
  ASSERT_EQ(selected.size(), 3u);
  EXPECT_EQ(selected[0].id, 0);
  EXPECT_EQ(selected[1].id, 3);
  EXPECT_EQ(selected[1].logit, 3.0f);
  EXPECT_EQ(selected[2].id, 5);
  for (const std::size_t n : {64, 129, 1000}) {
    const std::vector<float> logits = coarse_logits(n, n);
    select_above(logits, -kInfinity, selected);
    EXPECT_EQ(ids_of(selected), ranking(logits));
    EXPECT_TRUE(std::is_sorted(selected.begin(), selected.end(),
                               [](const Candidate& a, const Candidate& b) { return a.id < b.id; }));
  }
}

TEST(CounterRng, KnownValues) {
  EXPECT_EQ(random_bits(0, 0), 0xa706dd2f4d197e6fu);
  EXPECT_EQ(random_bits(0, 1), 0xb382a305f4414f5eu);
  EXPECT_EQ(random_bits(1, 0), 0x5e41ab087439611eu);
  EXPECT_EQ(random_bits(42, 7), 0xbc16a3d4cc48678eu);
  EXPECT_EQ(random_bits(~0ull, ~0ull), 0x445018e305810b78u);
}

TEST(CounterRng, ScaleToCoversExactlyTheRange) {
  EXPECT_EQ(scale_to(0, 10), 0u);
  EXPECT_EQ(scale_to(~0ull, 10), 9u);
  EXPECT_EQ(scale_to(~0ull, 1), 0u);
  EXPECT_EQ(scale_to(1ull << 63, 1ull << 62), 1ull << 61);
}

}  // namespace
}  // namespace moeflux
