#include "runtime/sampling/sampler.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Expected = std::vector<std::pair<TokenId, double>>;

// Probabilities 1/2, 1/4, 1/8, 1/16, 1/16.
const std::vector<float>& halves() {
  static const std::vector<float> logits = {std::log(8.0f), std::log(4.0f), std::log(2.0f), 0.0f,
                                            0.0f};
  return logits;
}

std::vector<TokenProbability> distribution(const SamplerInput& input,
                                           const SamplingParams& params) {
  return Sampler().distribution(input, params);
}

std::vector<TokenId> kept(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<TokenId> ids;
  for (const TokenProbability& token : distribution({.logits = logits}, params))
    ids.push_back(token.id);
  return ids;
}

void expect_distribution(const SamplerInput& input, const SamplingParams& params,
                         const Expected& expected, double tolerance = 1e-6) {
  const std::vector<TokenProbability> actual = distribution(input, params);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].id, expected[i].first) << i;
    EXPECT_NEAR(actual[i].probability, expected[i].second, tolerance) << i;
  }
}

// The logit that token 0 has when the sampler draws, from its odds against token 1, which has logit
// 0.
double effective_logit(float logit, const SamplingParams& params, std::vector<TokenId> history,
                       std::size_t n_prompt = 0) {
  const std::vector<float> logits = {logit, 0.0f};
  double p[2] = {};
  for (const TokenProbability& token :
       distribution({.logits = logits, .history = history, .n_prompt = n_prompt}, params)) {
    p[token.id] = token.probability;
  }
  return std::log(p[0] / p[1]);
}

std::string failure(const SamplerInput& input, const SamplingParams& params) {
  try {
    Sampler().sample(input, params);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::BadInput);
    return error.what();
  }
  return "(no error)";
}

TEST(Sampler, NeutralParametersGiveTheModelsDistribution) {
  expect_distribution({.logits = halves()}, {},
                      {{0, 0.5}, {1, 0.25}, {2, 0.125}, {3, 0.0625}, {4, 0.0625}});
}

TEST(Sampler, TemperatureScalesLogits) {
  expect_distribution(
      {.logits = halves()}, {.temperature = 0.5},
      {{0, 64 / 86.0}, {1, 16 / 86.0}, {2, 4 / 86.0}, {3, 1 / 86.0}, {4, 1 / 86.0}});
}

TEST(Sampler, TemperatureZeroTakesTheLowestOfTheLargest) {
  const std::vector<float> logits = {1.0f, 7.0f, 7.0f, kNan, -kInfinity};
  for (std::uint64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(Sampler().sample({.logits = logits, .step = step}, {.temperature = 0}), 1);
  }
  expect_distribution({.logits = logits}, {.temperature = 0}, {{1, 1.0}});
}

TEST(Sampler, TopKKeepsExactlyKWithTiesByLowerId) {
  expect_distribution({.logits = halves()}, {.top_k = 2}, {{0, 2 / 3.0}, {1, 1 / 3.0}});
  EXPECT_EQ(kept(halves(), {.top_k = 4}), (std::vector<TokenId>{0, 1, 2, 3}));
  EXPECT_EQ(kept(halves(), {.top_k = 100}).size(), 5u);
  EXPECT_EQ(kept(halves(), {.top_k = -1}).size(), 5u);
  EXPECT_EQ(kept({1, 1, 1, 1}, {.top_k = 2}), (std::vector<TokenId>{0, 1}));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesTheMass) {
  EXPECT_EQ(kept(halves(), {.top_p = 0.0}), (std::vector<TokenId>{0}));
  EXPECT_EQ(kept(halves(), {.top_p = 0.49}), (std::vector<TokenId>{0}));
  expect_distribution({.logits = halves()}, {.top_p = 0.51}, {{0, 2 / 3.0}, {1, 1 / 3.0}});
  EXPECT_EQ(kept(halves(), {.top_p = 0.76}).size(), 3u);
  EXPECT_EQ(kept(halves(), {.top_p = 0.9}), (std::vector<TokenId>{0, 1, 2, 3}));
  EXPECT_EQ(kept(halves(), {.top_p = 0.95}).size(), 5u);
}

TEST(Sampler, MinPIsRelativeToTheTopToken) {
  EXPECT_EQ(kept(halves(), {.min_p = 0.26}), (std::vector<TokenId>{0, 1}));
  EXPECT_EQ(kept(halves(), {.min_p = 0.24}), (std::vector<TokenId>{0, 1, 2}));
  EXPECT_EQ(kept(halves(), {.min_p = 1.0}), (std::vector<TokenId>{0}));
  EXPECT_EQ(kept(halves(), {.min_p = 1e-9}).size(), 5u);
}

TEST(Sampler, TypicalKeepsSurpriseCloseToTheEntropy) {
  // Surprises are 1, 2, 3, 4, 4 bits, the entropy is 1.875: the order is 1, 0, 2, 3, 4.
  EXPECT_EQ(kept(halves(), {.typical_p = 0.2}), (std::vector<TokenId>{1}));
  EXPECT_EQ(kept(halves(), {.typical_p = 0.3}), (std::vector<TokenId>{0, 1}));
  EXPECT_EQ(kept(halves(), {.typical_p = 0.8}), (std::vector<TokenId>{0, 1, 2}));
  EXPECT_EQ(kept(halves(), {.typical_p = 0.9}), (std::vector<TokenId>{0, 1, 2, 3}));
}

TEST(Sampler, FiltersApplyInTheDocumentedOrder) {
  // Temperature first: it flattens to 0.37 0.26 0.18 ..., else two tokens would reach 0.7.
  EXPECT_EQ(kept(halves(), {.temperature = 2.0, .top_p = 0.7}).size(), 3u);
  // top-k renormalizes to 2/3 and 1/3 before top-p.
  EXPECT_EQ(kept(halves(), {.top_k = 2, .top_p = 0.6}), (std::vector<TokenId>{0}));
  // top-p sees the mass that min-p drops later.
  EXPECT_EQ(kept(halves(), {.top_p = 0.6, .min_p = 0.4}), (std::vector<TokenId>{0, 1}));
  // min-p leaves only token 0 to typical, which alone would keep token 1.
  EXPECT_EQ(kept(halves(), {.min_p = 0.6, .typical_p = 0.2}), (std::vector<TokenId>{0}));
}

// Values computed with the logits processors of transformers 5.12 in float64.
TEST(Sampler, AgreesWithTheReference) {
  const std::vector<float> logits = {-0.37f, 1.97f,  2.37f, -2.79f, 4.23f,
                                     -2.24f, -0.89f, 3.08f, 0.35f,  -4.21f};
  const std::vector<TokenId> history = {3, 1, 3, 7};
  const SamplerInput input{.logits = logits, .history = history, .n_prompt = 2};
  expect_distribution(input, {.temperature = 0.7},
                      {{4, 0.763757089},
                       {7, 0.14773094},
                       {2, 0.053576307},
                       {1, 0.030255511},
                       {8, 0.002990357},
                       {0, 0.001069104},
                       {6, 0.000508629},
                       {5, 7.3932e-05},
                       {3, 3.3698e-05},
                       {9, 4.432e-06}},
                      1e-7);
  expect_distribution(input, {.top_k = 4},
                      {{4, 0.6342522}, {7, 0.200827567}, {2, 0.098735708}, {1, 0.066184525}}, 1e-7);
  expect_distribution(input, {.top_p = 0.8}, {{4, 0.759510917}, {7, 0.240489083}}, 1e-7);
  expect_distribution(input, {.min_p = 0.1},
                      {{4, 0.6342522}, {7, 0.200827567}, {2, 0.098735708}, {1, 0.066184525}}, 1e-7);
  expect_distribution(input, {.typical_p = 0.5}, {{4, 0.759510917}, {7, 0.240489083}}, 1e-7);
  expect_distribution(input, {.repetition_penalty = 1.3},
                      {{4, 0.706071594},
                       {2, 0.109916022},
                       {7, 0.109831504},
                       {1, 0.046763419},
                       {8, 0.014580961},
                       {0, 0.007097316},
                       {6, 0.0042195},
                       {5, 0.001093864},
                       {3, 0.000273273},
                       {9, 0.000152547}},
                      1e-6);
  expect_distribution(
      input,
      {.temperature = 0.7, .top_k = 6, .top_p = 0.9, .min_p = 0.05, .repetition_penalty = 1.3},
      {{4, 0.934449874}, {2, 0.065550126}}, 1e-7);
  expect_distribution(
      input, {.temperature = 1.5, .top_k = 8, .top_p = 0.95, .min_p = 0.02, .typical_p = 0.6},
      {{4, 0.682799386}, {7, 0.317200614}}, 1e-7);
}

TEST(Sampler, RepetitionPenaltyCountsEachTokenOnceInPromptAndReply) {
  const SamplingParams params{.repetition_penalty = 2.0};
  EXPECT_NEAR(effective_logit(3.0f, params, {}), 3.0, 1e-6);
  EXPECT_NEAR(effective_logit(3.0f, params, {0}), 1.5, 1e-6);
  EXPECT_NEAR(effective_logit(-3.0f, params, {0}), -6.0, 1e-6);
  EXPECT_NEAR(effective_logit(3.0f, params, {0, 0, 0}), 1.5, 1e-6);
  EXPECT_NEAR(effective_logit(3.0f, params, {0, 1}, 2), 1.5, 1e-6);
  EXPECT_NEAR(effective_logit(3.0f, {.repetition_penalty = 0.5}, {0}), 6.0, 1e-6);
}

TEST(Sampler, PresenceAndFrequencyCountGeneratedTokensOnly) {
  EXPECT_NEAR(effective_logit(1.0f, {.presence_penalty = 0.5}, {0, 0, 0}), 0.5, 1e-6);
  EXPECT_NEAR(effective_logit(1.0f, {.frequency_penalty = 0.5}, {0, 0, 0}), -0.5, 1e-6);
  EXPECT_NEAR(effective_logit(1.0f, {.presence_penalty = 0.25, .frequency_penalty = 0.5}, {0, 0}),
              -0.25, 1e-6);
  EXPECT_NEAR(effective_logit(1.0f, {.presence_penalty = -1.0}, {0}), 2.0, 1e-6);
  // Two in the prompt, one after it.
  EXPECT_NEAR(effective_logit(1.0f, {.frequency_penalty = 0.5}, {0, 0, 0}, 2), 0.5, 1e-6);
  EXPECT_NEAR(effective_logit(1.0f, {.presence_penalty = 0.5}, {0, 0}, 2), 1.0, 1e-6);
}

TEST(Sampler, BiasThenRepetitionThenPresence) {
  SamplingParams params{.repetition_penalty = 2.0};
  params.logit_bias = {{0, 2.0f}};
  EXPECT_NEAR(effective_logit(-1.0f, params, {0}), 0.5, 1e-6);  // the other way round: 0
  EXPECT_NEAR(effective_logit(1.0f, {.repetition_penalty = 2.0, .presence_penalty = 2.0}, {0}),
              -1.5, 1e-6);
}

TEST(Sampler, PenaltyWindowLimitsWhatIsSeen) {
  SamplingParams params{.repetition_penalty = 2.0, .penalty_window = 2};
  EXPECT_NEAR(effective_logit(3.0f, params, {0, 1, 1}), 3.0, 1e-6);
  EXPECT_NEAR(effective_logit(3.0f, params, {1, 0, 1}), 1.5, 1e-6);
  params.penalty_window = 0;
  EXPECT_NEAR(effective_logit(3.0f, params, {0}), 3.0, 1e-6);
  params.penalty_window = 100;
  EXPECT_NEAR(effective_logit(3.0f, params, {0, 1, 1}), 1.5, 1e-6);
  const SamplingParams frequency{.frequency_penalty = 1.0, .penalty_window = 3};
  EXPECT_NEAR(effective_logit(3.0f, frequency, {0, 0, 0, 0, 0}, 3), 1.0, 1e-6);
  EXPECT_NEAR(effective_logit(3.0f, frequency, {0, 0, 0, 0, 0}, 0), 0.0, 1e-6);
}

TEST(Sampler, OneSamplerServesManyCallsWithoutMemory) {
  Sampler sampler;
  const std::vector<TokenId> history = {0, 0, 1, 4};
  const SamplingParams penalized{
      .repetition_penalty = 1.5, .presence_penalty = 1, .frequency_penalty = 1};
  const auto first = sampler.distribution({.logits = halves(), .history = history}, penalized);
  const std::vector<float> small = {1.0f, 2.0f};
  sampler.sample({.logits = small, .history = history}, penalized);
  const auto second = sampler.distribution({.logits = halves(), .history = history}, penalized);
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].id, second[i].id);
    EXPECT_EQ(first[i].probability, second[i].probability);
  }
}

TEST(Sampler, HistoryIdsOutsideTheVocabularyAreIgnored) {
  const SamplingParams params{.repetition_penalty = 2.0, .frequency_penalty = 1.0};
  EXPECT_NEAR(effective_logit(3.0f, params, {0, -1, 2, kMaxTokenId}), 0.5, 1e-6);
}

TEST(Sampler, LogitBiasForcesAndForbids) {
  SamplingParams params{.temperature = 0};
  params.logit_bias = {{4, 100.0f}};
  EXPECT_EQ(Sampler().sample({.logits = halves()}, params), 4);
  params.logit_bias = {{0, -100.0f}};
  EXPECT_EQ(Sampler().sample({.logits = halves()}, params), 1);
  params.temperature = 1.0;
  EXPECT_EQ(kept(halves(), params), (std::vector<TokenId>{1, 2, 3, 4}));
  params.logit_bias = {{0, -kInfinity}, {1, -kInfinity}, {2, 1.0f}, {2, 1.0f}};
  expect_distribution({.logits = halves()}, params,
                      {{2, 2 * std::exp(2.0) / (2 * std::exp(2.0) + 2)},
                       {3, 1 / (2 * std::exp(2.0) + 2)},
                       {4, 1 / (2 * std::exp(2.0) + 2)}});
  params.logit_bias = {{5, 1.0f}};
  EXPECT_EQ(failure({.logits = halves()}, params),
            "logit_bias: 5 is not a token of this model (0 to 4)");
}

TEST(Sampler, PaddingRowsAreNeverSampled) {
  const std::vector<float> logits = {0.0f, 1.0f, 50.0f, kInfinity};
  EXPECT_EQ(Sampler().sample({.logits = logits, .n_valid = 2}, {.temperature = 0}), 1);
  expect_distribution({.logits = logits, .n_valid = 2}, {.top_p = 0.99},
                      {{1, std::exp(1.0) / (1 + std::exp(1.0))}, {0, 1 / (1 + std::exp(1.0))}});
  SamplingParams biased;
  biased.logit_bias = {{2, 100.0f}};
  EXPECT_NE(failure({.logits = logits, .n_valid = 2}, biased).find("2 is not a token"),
            std::string::npos);
}

TEST(Sampler, MaskForbidsTokensWhateverTheirBias) {
  const std::vector<std::uint8_t> allowed = {0, 1, 0, 1, 0};
  EXPECT_EQ(Sampler().sample({.logits = halves(), .allowed = allowed}, {.temperature = 0}), 1);
  SamplingParams params;
  params.logit_bias = {{0, 100.0f}};
  expect_distribution({.logits = halves(), .allowed = allowed}, params, {{1, 0.8}, {3, 0.2}});
}

TEST(Sampler, NanIsNeverSampledAndInfinityIsCertain) {
  expect_distribution({.logits = std::vector<float>{kNan, 1.0f, -kInfinity, 1.0f}}, {},
                      {{1, 0.5}, {3, 0.5}});
  expect_distribution({.logits = std::vector<float>{5.0f, kInfinity, 1.0f}}, {}, {{1, 1.0}});
  expect_distribution({.logits = std::vector<float>{kInfinity, kInfinity, 1.0f}}, {.top_k = 2},
                      {{0, 0.5}, {1, 0.5}});
}

TEST(Sampler, NothingLeftSaysWhy) {
  const std::vector<float> bad = {kNan, -kInfinity, 1.0f, kNan};
  const std::vector<std::uint8_t> allowed = {1, 1, 0, 1};
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_EQ(failure({.logits = bad, .allowed = allowed}, {.temperature = temperature}),
              "no token can be sampled: of 4 tokens 1 are forbidden by the mask, 2 have a NaN "
              "logit and 1 a logit of "
              "-infinity");
  }
  EXPECT_NE(failure({}, {}).find("of 0 tokens"), std::string::npos);
}

TEST(Sampler, InvalidParametersAreRefused) {
  EXPECT_NE(failure({.logits = halves()}, {.temperature = -1}).find("temperature"),
            std::string::npos);
  EXPECT_NE(failure({.logits = halves()}, {.top_p = std::nan("")}).find("top_p"),
            std::string::npos);
}

}  // namespace
}  // namespace moeflux
