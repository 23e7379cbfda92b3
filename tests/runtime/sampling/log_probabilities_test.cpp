#include "runtime/sampling/log_probabilities.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(LogProbabilities, HandComputed) {
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};
  EXPECT_NEAR(log_probability(logits, 0), std::log(0.125), 1e-6);
  EXPECT_NEAR(log_probability(logits, 1), std::log(0.25), 1e-6);
  EXPECT_NEAR(log_probability(logits, 2), std::log(0.625), 1e-6);
  EXPECT_EQ(log_probability(std::vector<float>{-3.5f}, 0), 0.0f);
}

TEST(LogProbabilities, IsStableForLargeLogits) {
  const std::vector<float> logits = {1e30f, 1e30f, -1e30f};
  EXPECT_NEAR(log_probability(logits, 0), std::log(0.5), 1e-6);
  EXPECT_EQ(log_probability(logits, 2), -2e30f);
  const std::vector<float> equal(248320, -500.0f);
  EXPECT_NEAR(log_probability(equal, 248319), -std::log(248320.0), 1e-5);
  const std::vector<float> extreme = {std::numeric_limits<float>::max(),
                                      std::numeric_limits<float>::lowest()};
  EXPECT_EQ(log_probability(extreme, 0), 0.0f);
  EXPECT_EQ(log_probability(extreme, 1), -kInfinity);
}

TEST(LogProbabilities, NanAndInfinity) {
  const std::vector<float> logits = {kNan, 1.0f, -kInfinity, 1.0f};
  EXPECT_EQ(log_probability(logits, 0), -kInfinity);
  EXPECT_NEAR(log_probability(logits, 1), std::log(0.5), 1e-6);
  EXPECT_EQ(log_probability(logits, 2), -kInfinity);
  EXPECT_EQ(log_probability(std::vector<float>{kInfinity, 0.0f}, 0), 0.0f);
  EXPECT_EQ(log_probability(std::vector<float>{kInfinity, 0.0f}, 1),
            std::numeric_limits<float>::lowest());
  EXPECT_THROW(log_probability(std::vector<float>{kNan, -kInfinity}, 0), Error);
  EXPECT_THROW(log_probability({}, 0), Error);
}

TEST(LogProbabilities, TopIsSortedWithTiesByLowerId) {
  const std::vector<float> logits = {0.0f, 2.0f, kNan, 2.0f, 1.0f, -kInfinity};
  const LogProbabilities log_probabilities(logits);
  const std::vector<TokenLogProbability> top = log_probabilities.top(3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].id, 1);
  EXPECT_EQ(top[1].id, 3);
  EXPECT_EQ(top[2].id, 4);
  EXPECT_EQ(top[0].log_probability, top[1].log_probability);
  EXPECT_NEAR(top[1].log_probability - top[2].log_probability, 1.0, 1e-6);
  EXPECT_EQ(top[2].log_probability, log_probabilities.of(4));
  EXPECT_EQ(log_probabilities.top(100).size(), 4u);
  EXPECT_TRUE(log_probabilities.top(0).empty());
}

TEST(LogProbabilities, ProbabilitiesAddUpToOne) {
  std::vector<float> logits(1003);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 97) * 0.1f;
  const LogProbabilities log_probabilities(logits);
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i)
    sum += std::exp(log_probabilities.of(static_cast<TokenId>(i)));
  EXPECT_NEAR(sum, 1.0, 1e-6);
}

}  // namespace
}  // namespace moeflux
