#include "engine/measure/forecast.h"

#include <cmath>

#include <gtest/gtest.h>

namespace moeflux::test {
namespace {

// A model of 397 billion parameters at 4.5 bits per weight.
constexpr TokenBytes kLarge = {.dense = 5.6e9, .experts = 4.25e9, .context = 0};

TEST(LimitModelTest, TimesOfAToken) {
  const TokenTime time = token_time(kLarge, 0.58, {.disk = 6.5e9, .memory = 65e9});
  EXPECT_NEAR(time.disk, 0.42 * 4.25 / 6.5, 1e-9);
  EXPECT_NEAR(time.memory, (5.6 + 4.25 + 0.42 * 4.25) / 65, 1e-9);
  EXPECT_TRUE(time.disk_bound());
  EXPECT_NEAR(time.tokens_per_second(), 3.64, 0.01);
  EXPECT_NEAR(time.serial_tokens_per_second(), 2.21, 0.01);
}

TEST(LimitModelTest, ACacheThatHoldsEverythingNeedsNoDrive) {
  const TokenTime time = token_time(kLarge, 1, {.disk = 0, .memory = 70e9});
  EXPECT_EQ(time.disk, 0);
  EXPECT_FALSE(time.disk_bound());
  EXPECT_NEAR(time.tokens_per_second(), 70 / 9.85, 1e-6);
  EXPECT_EQ(time.tokens_per_second(), time.serial_tokens_per_second());
}

TEST(LimitModelTest, WithoutADriveThereAreNoTokens) {
  const TokenTime time = token_time(kLarge, 0.5, {.disk = 0, .memory = 70e9});
  EXPECT_TRUE(std::isinf(time.disk));
  EXPECT_EQ(time.tokens_per_second(), 0);
}

TEST(LimitModelTest, HitRatesOutsideOfTheirRangeAreClamped) {
  EXPECT_EQ(token_time(kLarge, 2, {1e9, 1e9}).disk, 0);
  EXPECT_NEAR(token_time(kLarge, -1, {1e9, 1e9}).disk, 4.25, 1e-9);
}

ExpertCounts large(double share, bool sigmoid = false) {  // 60 layers of 512, 10 per token
  return {.total = 30720,
          .per_token = 600,
          .cached = static_cast<std::uint64_t>(share * 30720),
          .per_layer = 512,
          .sigmoid_router = sigmoid};
}

TEST(LimitModelTest, UniformHitRate) {
  EXPECT_DOUBLE_EQ(uniform_hit_rate(large(0.25)), 0.25);
  EXPECT_EQ(uniform_hit_rate(large(1)), 1);
  ExpertCounts tight = large(0);
  tight.cached = 599;
  EXPECT_EQ(uniform_hit_rate(tight), 0);
  tight.cached = 600;
  EXPECT_NEAR(uniform_hit_rate(tight), 600.0 / 30720, 1e-12);
}

TEST(LimitModelTest, TypicalHitRateFollowsThePublishedOnes) {
  EXPECT_NEAR(typical_hit_rate(large(0.17)), 0.72, 0.01);
  EXPECT_NEAR(typical_hit_rate(large(0.125)), 0.65, 0.01);
  EXPECT_NEAR(typical_hit_rate(large(0.25)), 0.82, 0.01);
  EXPECT_NEAR(typical_hit_rate(large(0.25, true)), 0.72, 0.01);
  EXPECT_NEAR(typical_hit_rate(large(0.10, true)), 0.50, 0.01);
  // 64 experts: the curve alone would say 0.90, 0.68 was measured.
  const ExpertCounts few{.total = 1024, .per_token = 128, .cached = 384, .per_layer = 64};
  EXPECT_NEAR(typical_hit_rate(few), 0.64, 0.01);
}

TEST(LimitModelTest, HitRatesRiseWithTheCache) {
  for (const bool sigmoid : {false, true}) {
    double uniform = -1, typical = -1, mixed = -1;
    for (int i = 0; i <= 200; ++i) {
      const ExpertCounts counts = large(i / 200.0, sigmoid);
      EXPECT_GE(uniform_hit_rate(counts), uniform);
      EXPECT_GE(typical_hit_rate(counts), typical) << i;
      EXPECT_GE(mixed_hit_rate(counts), mixed) << i;
      uniform = uniform_hit_rate(counts);
      typical = typical_hit_rate(counts);
      mixed = mixed_hit_rate(counts);
      EXPECT_LE(uniform, mixed);
      EXPECT_LE(mixed, typical);
      EXPECT_LE(typical, 1);
      EXPECT_GE(uniform, 0);
    }
    EXPECT_EQ(typical, 1);
    EXPECT_EQ(mixed, 1);
  }
}

TEST(LimitModelTest, AModelWithoutExpertsAlwaysHits) {
  EXPECT_EQ(uniform_hit_rate({}), 1);
  EXPECT_EQ(typical_hit_rate({}), 1);
  EXPECT_EQ(mixed_hit_rate({}), 1);
}

TEST(LimitModelTest, ExpertsOfSeveralTokens) {
  EXPECT_DOUBLE_EQ(expected_experts(512, 10, 1), 10);
  EXPECT_NEAR(expected_experts(512, 10, 8) / 512, 0.146, 0.001);
  EXPECT_NEAR(expected_experts(512, 10, 128) / 512, 0.92, 0.005);
  EXPECT_DOUBLE_EQ(expected_experts(8, 8, 1), 8);
  EXPECT_EQ(expected_experts(0, 0, 5), 0);
}

TEST(LimitModelTest, PrefillSweepsOverTheExpertsItUses) {
  PrefillSweep sweep{
      .expert_bytes_total = 217e9, .n_experts = 512, .top_k = 10, .cached_share = 0, .chunk = 4096};
  EXPECT_NEAR(prefill_disk_tokens_per_second(sweep, 6.5e9), 4096 / (217 / 6.5), 0.5);
  sweep.cached_share = 0.5;
  EXPECT_NEAR(prefill_disk_tokens_per_second(sweep, 6.5e9), 2 * 4096 / (217 / 6.5), 0.5);
  sweep.cached_share = 1;
  EXPECT_TRUE(std::isinf(prefill_disk_tokens_per_second(sweep, 6.5e9)));
}

}  // namespace
}  // namespace moeflux::test
