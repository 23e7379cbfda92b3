// The random side of the sampler. Every number here is a function of a fixed seed, so nothing can
// fail by chance.
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "runtime/sampling/counter_rng.h"
#include "runtime/sampling/sampler.h"

namespace moeflux {
namespace {

const std::vector<float>& ten_logits() {
  static const std::vector<float> logits = {-0.37f, 1.97f,  2.37f, -2.79f, 4.23f,
                                            -2.24f, -0.89f, 3.08f, 0.35f,  -4.21f};
  return logits;
}

std::vector<TokenId> sequence(const SamplingParams& params, std::size_t n) {
  Sampler sampler;
  std::vector<TokenId> tokens;
  for (std::uint64_t step = 0; step < n; ++step) {
    tokens.push_back(sampler.sample({.logits = ten_logits(), .step = step}, params));
  }
  return tokens;
}

// Pearson's statistic of 200 thousand draws against the distribution the sampler reports.
double chi_square(const SamplingParams& params,
                  const std::function<TokenId(Sampler&, std::uint64_t)>& draw) {
  constexpr int kDraws = 200000;
  Sampler sampler;
  const auto expected = sampler.distribution({.logits = ten_logits()}, params);
  std::map<TokenId, int> counts;
  for (std::uint64_t i = 0; i < kDraws; ++i) ++counts[draw(sampler, i)];
  double sum = 0;
  int seen = 0;
  for (const TokenProbability& token : expected) {
    const double wanted = token.probability * kDraws;
    sum += (counts[token.id] - wanted) * (counts[token.id] - wanted) / wanted;
    seen += counts[token.id];
  }
  EXPECT_EQ(seen, kDraws) << "a token outside of the distribution was drawn";
  return sum;
}

double chi_square_over_steps(const SamplingParams& params) {
  return chi_square(params, [&](Sampler& sampler, std::uint64_t i) {
    return sampler.sample({.logits = ten_logits(), .step = i}, params);
  });
}

// 1 in 1000 random sequences would exceed these.
constexpr double kLimit9 = 27.88, kLimit3 = 16.27;  // 9 and 3 degrees of freedom

TEST(SamplerDraw, FrequenciesMatchTheProbabilities) {
  EXPECT_LT(chi_square_over_steps({.seed = 1}), kLimit9);
  EXPECT_LT(chi_square_over_steps({.temperature = 3.0, .seed = 2}), kLimit9);
  EXPECT_LT(chi_square_over_steps({.top_k = 4, .seed = 3}), kLimit3);
  EXPECT_LT(chi_square_over_steps({.temperature = 2.0, .top_p = 0.8, .seed = 4}), kLimit3);
}

TEST(SamplerDraw, SeedsAreAsRandomAsSteps) {
  SamplingParams params{.temperature = 3.0};
  const double over_seeds = chi_square(params, [&](Sampler& sampler, std::uint64_t i) {
    params.seed = i;
    return sampler.sample({.logits = ten_logits()}, params);
  });
  EXPECT_LT(over_seeds, kLimit9);
}

TEST(SamplerDraw, NeighbouringStepsAreIndependent) {
  // 4 by 4 table of pairs of draws from four equal tokens.
  const std::vector<float> logits(4, 0.0f);
  constexpr int kDraws = 160000;
  Sampler sampler;
  int pairs[4][4] = {};
  TokenId previous = 0;
  for (std::uint64_t step = 0; step < kDraws; ++step) {
    const TokenId token = sampler.sample({.logits = logits, .step = step}, {.seed = 7});
    ++pairs[previous][token];
    previous = token;
  }
  double sum = 0;
  for (const auto& row : pairs) {
    for (const int count : row)
      sum += (count - kDraws / 16.0) * (count - kDraws / 16.0) / (kDraws / 16.0);
  }
  EXPECT_LT(sum, 37.70);  // 15 degrees of freedom, 1 in 1000
}

// Computed by an independent implementation: these tokens must come out on every machine.
TEST(SamplerDraw, KnownSequences) {
  EXPECT_EQ(sequence({.seed = 42}, 24), (std::vector<TokenId>{4, 7, 4, 1, 4, 1, 4, 4, 2, 4, 4, 4,
                                                              4, 4, 7, 4, 4, 4, 4, 2, 4, 7, 4, 1}));
  EXPECT_EQ(sequence({.seed = 43}, 24), (std::vector<TokenId>{7, 2, 4, 4, 4, 4, 4, 4, 7, 4, 2, 7,
                                                              1, 7, 4, 4, 2, 4, 7, 4, 4, 1, 7, 4}));
  EXPECT_EQ(sequence({.temperature = 3.0, .seed = 42}, 24),
            (std::vector<TokenId>{3, 8, 4, 1, 6, 1, 2, 7, 1, 6, 5, 1,
                                  2, 2, 7, 7, 4, 4, 5, 1, 5, 9, 7, 1}));
}

TEST(SamplerDraw, StepsCanBeTakenInAnyOrder) {
  const SamplingParams params{.temperature = 3.0, .top_p = 0.95, .seed = 11};
  const std::vector<TokenId> forward = sequence(params, 100);
  Sampler sampler;
  for (std::uint64_t step = 100; step-- > 0;) {
    EXPECT_EQ(sampler.sample({.logits = ten_logits(), .step = step}, params), forward[step]);
  }
}

TEST(SamplerDraw, DifferentSeedsGiveDifferentSequences) {
  std::set<std::vector<TokenId>> sequences;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    sequences.insert(sequence({.temperature = 3.0, .seed = seed}, 40));
  }
  EXPECT_EQ(sequences.size(), 100u);
}

TEST(SamplerDraw, LargeVocabularyWithEveryFilter) {
  std::vector<float> logits(248320);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] =
        static_cast<float>(scale_to(random_bits(5, i), 1u << 20)) / static_cast<float>(1 << 16);
  }
  const SamplerInput input{.logits = logits, .n_valid = 248077};
  Sampler sampler;
  // Logits are uniform in 0..16: a share of about exp(-16 x) of the mass lies in the lowest 1 - x
  // of the range.
  const auto top_p = sampler.distribution(input, {.top_p = 0.95});
  EXPECT_NEAR(static_cast<double>(top_p.size()), 248077 * std::log(20.0) / 16, 1000);
  EXPECT_EQ(sampler.distribution(input, {.top_k = 1000}).size(), 1000u);
  const auto min_p = sampler.distribution(input, {.min_p = 0.1});
  EXPECT_NEAR(static_cast<double>(min_p.size()), 248077 * std::log(10.0) / 16, 1000);
  for (const auto& tokens : {top_p, min_p}) {
    double sum = 0;
    for (const TokenProbability& token : tokens) sum += token.probability;
    EXPECT_NEAR(sum, 1.0, 1e-9);
    EXPECT_LT(tokens.back().id, 248077);
  }
}

}  // namespace
}  // namespace moeflux
