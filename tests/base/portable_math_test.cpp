#include "base/portable_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>
#include <xxhash.h>

namespace moeflux::portable {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(PortableMath, ScaledExpIsAccurateAndScales) {
  EXPECT_EQ(scaled_exp(0.0, 0), 1.0);
  EXPECT_EQ(scaled_exp(0.0, 45), 0x1p45);
  for (int i = 0; i <= 640000; ++i) {
    const double x = -i * 1e-4;
    // The series leaves out (ln(2) / 2)^12 / 12! = 6.3e-15, which is 8.9e-15 of exp(-ln(2) / 2).
    ASSERT_NEAR(scaled_exp(x, 0) / std::exp(x), 1.0, 1e-14) << x;
    ASSERT_EQ(scaled_exp(x, 52), scaled_exp(x, 0) * 0x1p52) << x;
  }
}

TEST(PortableMath, ExpTakesEveryNumber) {
  for (double x = -699.5; x < 700; x += 0.37) ASSERT_NEAR(exp(x) / std::exp(x), 1.0, 1e-14) << x;
  EXPECT_EQ(exp(-kInfinity), 0.0);
  EXPECT_EQ(exp(-701.0), 0.0);
  EXPECT_EQ(exp(701.0), kInfinity);
  EXPECT_EQ(exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exp(kNan)));
  EXPECT_EQ(exp(-100.0f), std::exp(-100.0f));  // subnormal
  EXPECT_EQ(exp(89.0f), std::numeric_limits<float>::infinity());
}

TEST(PortableMath, LogIsAccurate) {
  for (double x = 1e-300; x < 1e300; x *= 1.37)
    ASSERT_NEAR(log(x), std::log(x), 4e-16 * std::abs(std::log(x))) << x;
  for (int i = -1000; i <= 1000; ++i) {
    const double x = 1 + i * 1e-5;
    ASSERT_NEAR(log(x), std::log(x), 4e-16 * std::abs(std::log(x))) << x;
  }
  EXPECT_EQ(log(1.0), 0.0);
  EXPECT_EQ(log(0.0), -kInfinity);
  EXPECT_EQ(log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(log(-1.0)));
  EXPECT_TRUE(std::isnan(log(kNan)));
}

TEST(PortableMath, PowGivesTheFrequenciesOfRope) {
  for (const double theta : {10000.0, 50000.0, 500000.0, 1e6, 1e7}) {
    for (int i = 0; i < 64; ++i) {
      const double y = -2.0 * i / 128;
      ASSERT_EQ(static_cast<float>(pow(theta, y)), static_cast<float>(std::pow(theta, y)))
          << theta << "^" << y;
    }
  }
}

TEST(PortableMath, SoftplusAndSigmoidAreAccurate) {
  for (double x = -90; x < 90; x += 0.013) {
    const double softplus_of_x = x > 40 ? x : std::log1p(std::exp(x));
    ASSERT_NEAR(softplus(x) / softplus_of_x, 1.0, 1.5e-14) << x;
    ASSERT_NEAR(sigmoid(x) * (1 + std::exp(-x)), 1.0, 1.5e-14) << x;
  }
  EXPECT_EQ(softplus(-kInfinity), 0.0);
  EXPECT_EQ(softplus(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(softplus(kNan)));
  EXPECT_EQ(softplus(1e30f), 1e30f);
  EXPECT_EQ(sigmoid(-200.0f), 0.0f);
  EXPECT_EQ(sigmoid(-kInfinity), 0.0);
  EXPECT_EQ(sigmoid(kInfinity), 1.0);
  EXPECT_TRUE(std::isnan(sigmoid(kNan)));
}

TEST(PortableMath, SinCosAreAccurateFarOut) {
  const auto check = [](double x) {
    const SinCos ours = sin_cos(x);
    ASSERT_NEAR(ours.sin, std::sin(x), 1e-15) << x;
    ASSERT_NEAR(ours.cos, std::cos(x), 1e-15) << x;
  };
  for (double x = -8; x < 8; x += 0.0013) check(x);
  for (float x = 1e-6f; x < 0x1p26f; x *= 1.0071f) check(x);
  for (int position = 0; position < 1 << 24; position += 997) check(position);
  EXPECT_EQ(sin_cos(0).sin, 0.0);
  EXPECT_EQ(sin_cos(0).cos, 1.0);
}

// The same bits on every machine: with any C library, compiler and processor these numbers come
// out.
TEST(PortableMath, BitsAreTheseEverywhere) {
  XXH64_state_t* state = XXH64_createState();
  const auto digest_of = [&](auto function) {
    XXH64_reset(state, 0);
    for (int i = -40000; i <= 40000; ++i) {
      const double result = function(i * 0.0017);
      const auto bits = std::bit_cast<std::uint64_t>(result);
      XXH64_update(state, &bits, sizeof bits);
    }
    return XXH64_digest(state);
  };
  EXPECT_EQ(digest_of([](double x) { return exp(x); }), 0xd7912065e2cdee75u);
  EXPECT_EQ(digest_of([](double x) { return log(x * x + 1e-9); }), 0x10e9c5a4a447fbb4u);
  EXPECT_EQ(digest_of([](double x) { return softplus(x); }), 0x2db555ab8d6744d5u);
  EXPECT_EQ(digest_of([](double x) { return sigmoid(x); }), 0x8280c0a34c2a213eu);
  EXPECT_EQ(digest_of([](double x) { return sin_cos(x * 100).sin; }), 0x9366e03cc47843cdu);
  EXPECT_EQ(digest_of([](double x) { return sin_cos(x * 100).cos; }), 0x7639d2c9a74ae8c2u);
  XXH64_freeState(state);
}

}  // namespace
}  // namespace moeflux::portable
