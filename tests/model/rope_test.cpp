#include "model/rope.h"

#include <cmath>

#include <gtest/gtest.h>

namespace moeflux {
namespace {

// Where the ramp of YaRN begins and ends, read back from the frequencies: up to `low` they are
// plain, from `high` on divided by the factor.
struct Ramp {
  int low = -1;
  int high = -1;
};

Ramp ramp_of(const RopeSpec& yarn, double theta, double factor) {
  const RopeSpec plain = make_rope(theta, yarn.n_rot, false);
  Ramp ramp;
  for (int i = 0; i < yarn.n_rot / 2; ++i) {
    const double share = yarn.inv_freq[i] / plain.inv_freq[i];
    if (share > 1 - 1e-6) ramp.low = i;
    if (share < (1 / factor) * (1 + 1e-6) && ramp.high < 0) ramp.high = i;
  }
  return ramp;
}

YarnScaling deepseek_yarn() {
  return {.factor = 40,
          .beta_fast = 32,
          .beta_slow = 1,
          .original_context = 4096,
          .truncate = true,
          .mscale = 1.0,
          .mscale_all_dim = 1.0,
          .attention_factor = {}};
}

TEST(Rope, PlainFrequencies) {
  const RopeSpec rope = make_rope(1e7, 64, false);
  EXPECT_EQ(rope.n_rot, 64);
  EXPECT_FALSE(rope.interleaved);
  EXPECT_EQ(rope.magnitude, 1.0f);
  ASSERT_EQ(rope.inv_freq.size(), 32u);
  EXPECT_EQ(rope.inv_freq[0], 1.0f);
  EXPECT_FLOAT_EQ(rope.inv_freq[1], 0.60429639f);     // 1e7^(-1/32)
  EXPECT_FLOAT_EQ(rope.inv_freq[16], 3.1622777e-4f);  // 1e7^(-1/2)
  EXPECT_FLOAT_EQ(rope.inv_freq[31], 1.6548170e-7f);  // 1e7^(-31/32)
  EXPECT_TRUE(make_rope(1e4, 8, true).interleaved);
}

// Three of ten dimensions: their frequencies divide by 3, the last is rotated with the one behind.
TEST(Rope, AnOddNumberOfDimensions) {
  const RopeSpec rope = make_rope(1e6, 3, false);
  EXPECT_EQ(rope.n_rot, 4);
  ASSERT_EQ(rope.inv_freq.size(), 2u);
  EXPECT_EQ(rope.inv_freq[0], 1.0f);
  EXPECT_FLOAT_EQ(rope.inv_freq[1], 1e-4f);  // 1e6^(-2/3)
  const RopeSpec one = make_rope(1e6, 1, true);
  EXPECT_EQ(one.n_rot, 2);
  EXPECT_EQ(one.inv_freq, std::vector<float>{1});
  const RopeSpec llama3 = make_llama3_rope(
      1e6, 3, false,
      {.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 64});
  EXPECT_EQ(llama3.n_rot, 4);
  ASSERT_EQ(llama3.inv_freq.size(), 2u);
  EXPECT_FLOAT_EQ(llama3.inv_freq[1], 1e-4f / 8);
}

TEST(Rope, LinearDividesEveryFrequency) {
  const RopeSpec plain = make_rope(1e4, 16, true);
  const RopeSpec linear = make_linear_rope(1e4, 16, true, 4);
  EXPECT_TRUE(linear.interleaved);
  EXPECT_EQ(linear.magnitude, 1.0f);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(linear.inv_freq[i], plain.inv_freq[i] / 4);
}

TEST(Rope, YarnOfDeepseekV3) {
  const RopeSpec rope = make_yarn_rope(1e4, 64, true, deepseek_yarn());
  const Ramp ramp = ramp_of(rope, 1e4, 40);
  EXPECT_EQ(ramp.low, 10);
  EXPECT_EQ(ramp.high, 23);
  EXPECT_EQ(rope.magnitude, 1.0f);  // both mscales are 1
  // Half-way values: p = 16 has ramp 6/13.
  const double f = std::pow(1e4, -0.5);
  EXPECT_FLOAT_EQ(rope.inv_freq[16], static_cast<float>(f * (7.0 / 13) + f / 40 * (6.0 / 13)));
  EXPECT_FLOAT_EQ(rope.inv_freq[31], static_cast<float>(std::pow(1e4, -62.0 / 64) / 40));
}

TEST(Rope, YarnOfKimiK2) {
  YarnScaling yarn = deepseek_yarn();
  yarn.factor = 32;
  yarn.beta_fast = 1;
  const RopeSpec rope = make_yarn_rope(5e4, 64, true, yarn);
  const Ramp ramp = ramp_of(rope, 5e4, 32);
  EXPECT_EQ(ramp.low, 19);
  EXPECT_EQ(ramp.high, 20);
}

// The ramp goes from 10.472 to 22.513.
TEST(Rope, YarnWithoutTruncation) {
  YarnScaling yarn = deepseek_yarn();
  yarn.truncate = false;
  const RopeSpec rope = make_yarn_rope(1e4, 64, true, yarn);
  EXPECT_FLOAT_EQ(rope.inv_freq[10], 0.0562341325f);
  EXPECT_FLOAT_EQ(rope.inv_freq[11], 0.0403675845f);
  EXPECT_FLOAT_EQ(rope.inv_freq[16], 0.00552406298f);
  EXPECT_FLOAT_EQ(rope.inv_freq[22], 0.000118387732f);
  EXPECT_FLOAT_EQ(rope.inv_freq[23], 3.33380358e-05f);
}

TEST(Rope, YarnWhoseRampIsEmpty) {
  // Both ends fall on the same dimension: a step just after it.
  YarnScaling yarn = deepseek_yarn();
  yarn.original_context = 2 * 3.14159265358979 * 1e4;  // one turn exactly at dimension n_rot
  yarn.beta_fast = yarn.beta_slow = 1;
  const RopeSpec rope = make_yarn_rope(1e4, 8, false, yarn);
  for (const float f : rope.inv_freq) EXPECT_TRUE(std::isfinite(f) && f > 0) << f;
}

// The values of Llama 3.1: dimensions up to 28 stay, from 35 on they are divided.
TEST(Rope, Llama3) {
  const RopeSpec rope = make_llama3_rope(
      5e5, 128, false,
      {.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 8192});
  EXPECT_EQ(rope.magnitude, 1.0f);
  ASSERT_EQ(rope.inv_freq.size(), 64u);
  EXPECT_EQ(rope.inv_freq[0], 1.0f);
  EXPECT_FLOAT_EQ(rope.inv_freq[28], 0.00321144599f);
  EXPECT_FLOAT_EQ(rope.inv_freq[29], 0.00216657076f);
  EXPECT_FLOAT_EQ(rope.inv_freq[34], 0.000178507813f);
  EXPECT_FLOAT_EQ(rope.inv_freq[35], 9.55621235e-05f);
  EXPECT_FLOAT_EQ(rope.inv_freq[63], 3.06892599e-07f);
}

TEST(Rope, MscaleOfYarn) {
  EXPECT_DOUBLE_EQ(yarn_mscale(1, 1), 1.0);
  EXPECT_DOUBLE_EQ(yarn_mscale(0.5, 1), 1.0);
  EXPECT_NEAR(yarn_mscale(4, 1), 1.1386294361, 1e-10);
  EXPECT_NEAR(yarn_mscale(40, 1), 1.3688879454, 1e-10);
  EXPECT_NEAR(yarn_mscale(40, 0.5), 1.1844439727, 1e-10);
}

TEST(Rope, MagnitudeOfYarn) {
  YarnScaling yarn = deepseek_yarn();
  const auto magnitude = [&] { return make_yarn_rope(1e4, 64, true, yarn).magnitude; };
  yarn.mscale_all_dim = 0.5;
  EXPECT_FLOAT_EQ(magnitude(), 1.3688879454f / 1.1844439727f);
  yarn.mscale_all_dim.reset();  // one of the two missing, or zero: the plain rule
  EXPECT_FLOAT_EQ(magnitude(), 1.3688879454f);
  yarn.mscale_all_dim = 0.0;
  EXPECT_FLOAT_EQ(magnitude(), 1.3688879454f);
  yarn.mscale.reset();
  EXPECT_FLOAT_EQ(magnitude(), 1.3688879454f);
  yarn.attention_factor = 0.75;  // given outright
  EXPECT_FLOAT_EQ(magnitude(), 0.75f);
}

}  // namespace
}  // namespace moeflux
