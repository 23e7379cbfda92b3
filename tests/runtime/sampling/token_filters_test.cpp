#include "runtime/sampling/token_filters.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "runtime/sampling/counter_rng.h"

namespace moeflux {
namespace {

using Candidates = std::vector<Candidate>;

std::vector<TokenId> ids_of(const Candidates& candidates) {
  std::vector<TokenId> ids;
  for (const Candidate& c : candidates) ids.push_back(c.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<float> random_logits(std::size_t n, std::uint64_t seed) {
  std::vector<float> logits(n);
  for (std::size_t i = 0; i < n; ++i) {
    // A multiple of 1/64 from -8 to 8: with ties.
    logits[i] = static_cast<float>(scale_to(random_bits(seed, i), 1024)) / 64.0f - 8.0f;
  }
  return logits;
}

Candidates weighted(const std::vector<float>& logits, const WeightScale& scale) {
  Candidates candidates;
  select_above(logits, scale.floor_for(-(scale.bits + 1)), candidates);
  assign_weights(scale, candidates);
  return candidates;
}

WeightScale scale_of(const std::vector<float>& logits, double temperature = 1.0) {
  return {*std::max_element(logits.begin(), logits.end()), temperature, logits.size()};
}

// Another order of the same candidates; filters must not notice.
Candidates shuffled(Candidates candidates, std::uint64_t seed) {
  for (std::size_t i = candidates.size(); i > 1; --i) {
    std::swap(candidates[i - 1], candidates[scale_to(random_bits(seed, i), i)]);
  }
  return candidates;
}

// The shortest prefix, after sorting by (key, id), that holds at least `mass` of the weight.
template <class Key>
std::vector<TokenId> expected_prefix(Candidates candidates, double mass, Key key) {
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    return key(a) != key(b) ? key(a) < key(b) : a.id < b.id;
  });
  const double need = std::ceil(mass * static_cast<double>(total_weight(candidates)));
  std::uint64_t sum = 0;
  std::size_t n = 0;
  while (n == 0 || static_cast<double>(sum) < need) sum += candidates[n++].weight;
  candidates.resize(n);
  return ids_of(candidates);
}

TEST(WeightScale, UsesTheBitsThatTheVocabularyLeaves) {
  EXPECT_EQ(WeightScale(0, 1, 1).bits, 52);
  EXPECT_EQ(WeightScale(0, 1, 2048).bits, 51);
  EXPECT_EQ(WeightScale(0, 1, 248320).bits, 45);
  EXPECT_EQ(WeightScale(0, 1, std::size_t{1} << 24).bits, 38);
}

TEST(WeightScale, WeightsAreRoundedExponentials) {
  const std::vector<float> logits = {2.0f, 1.0f, 3.0f, -20.0f};
  const Candidates candidates = weighted(logits, scale_of(logits, 0.5));
  ASSERT_EQ(candidates.size(), 3u);  // exp(-46) is below 2^-53
  EXPECT_NEAR(std::ldexp(static_cast<double>(candidates[0].weight), -52), std::exp(-2.0), 1e-15);
  EXPECT_NEAR(std::ldexp(static_cast<double>(candidates[1].weight), -52), std::exp(-4.0), 1e-15);
  EXPECT_EQ(candidates[2].weight, 1ull << 52);
}

TEST(WeightScale, LogitsUpToTheFloorWeighLess) {
  for (const double temperature : {1e-300, 0.01, 1.0, 1000.0}) {
    for (const float top : {0.0f, 15.0f, -1e30f, 3e38f}) {
      const WeightScale scale(top, temperature, 1000);
      const float floor = scale.floor_for(-10);
      EXPECT_LT(floor, top);
      // A logit at the floor or below weighs less than 2^-10.
      if (std::isfinite(floor)) {
        EXPECT_LT(scale.relative_log(floor), -10 * std::log(2.0));
      }
    }
  }
}

TEST(WeightScale, ExtremeLogitsStayOrdinary) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {kInfinity, std::numeric_limits<float>::lowest(), kInfinity,
                                     1.0f};
  const Candidates candidates = weighted(logits, scale_of(logits, 1e-30));
  EXPECT_EQ(ids_of(candidates), (std::vector<TokenId>{0, 2}));
  EXPECT_EQ(candidates[0].weight, candidates[1].weight);
}

TEST(TokenFilters, TopPAgreesWithSortingInAnyOrder) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> logits = random_logits(1500, seed);
    const WeightScale scale = scale_of(logits, seed % 2 == 0 ? 1.0 : 4.0);
    const Candidates all = weighted(logits, scale);
    for (const double mass : {0.0, 0.1, 0.5, 0.95, 0.9999}) {
      const auto expected = expected_prefix(all, mass, [](const Candidate& c) { return -c.logit; });
      Candidates kept = all, kept_shuffled = shuffled(all, seed);
      keep_top_p(mass, scale, kept);
      keep_top_p(mass, scale, kept_shuffled);
      EXPECT_EQ(ids_of(kept), expected) << seed << " " << mass;
      EXPECT_EQ(ids_of(kept_shuffled), expected) << seed << " " << mass;
    }
  }
}

TEST(TokenFilters, TypicalAgreesWithSortingInAnyOrder) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> logits = random_logits(1500, seed);
    const WeightScale scale = scale_of(logits, seed % 2 == 0 ? 1.0 : 4.0);
    const Candidates all = weighted(logits, scale);
    const auto total = static_cast<double>(total_weight(all));
    double entropy = 0;
    for (const Candidate& c : all) {
      const double p = static_cast<double>(c.weight) / total;
      entropy -= p * std::log(p);
    }
    for (const double mass : {0.01, 0.2, 0.9}) {
      const auto expected = expected_prefix(all, mass, [&](const Candidate& c) {
        return std::abs(-std::log(static_cast<double>(c.weight) / total) - entropy);
      });
      Candidates kept = shuffled(all, seed);
      keep_typical(mass, scale, kept);
      EXPECT_EQ(kept.size(), expected.size()) << seed << " " << mass;
      EXPECT_EQ(ids_of(kept), expected) << seed << " " << mass;
    }
  }
}

TEST(TokenFilters, EqualWeightsKeepTheLowerIds) {
  const std::vector<float> logits(10, 1.5f);
  const WeightScale scale = scale_of(logits);
  for (const auto& [mass, n] : {std::pair{0.0, 1}, {0.05, 1}, {0.5, 5}, {0.8, 8}, {0.81, 9}}) {
    Candidates top = shuffled(weighted(logits, scale), 3);
    keep_top_p(mass, scale, top);
    ASSERT_EQ(top.size(), static_cast<std::size_t>(n)) << mass;
    EXPECT_EQ(ids_of(top).back(), n - 1) << mass;
    if (mass == 0.0) continue;
    Candidates typical = shuffled(weighted(logits, scale), 4);
    keep_typical(mass, scale, typical);
    EXPECT_EQ(ids_of(typical), ids_of(top)) << mass;
  }
}

TEST(TokenFilters, MinPKeepsTheTopEvenAtOne) {
  const std::vector<float> logits = {0.0f, 2.0f, 1.9f, 2.0f};
  Candidates kept = weighted(logits, scale_of(logits));
  keep_min_p(1.0, scale_of(logits), kept);
  EXPECT_EQ(ids_of(kept), (std::vector<TokenId>{1, 3}));
}

TEST(TokenFilters, DrawDoesNotDependOnTheOrderOfCandidates) {
  const std::vector<float> logits = random_logits(500, 1);
  Candidates sorted = weighted(logits, scale_of(logits, 3.0));
  for (std::uint64_t step = 0; step < 500; ++step) {
    Candidates other = shuffled(sorted, step);
    EXPECT_EQ(draw_token(random_bits(9, step), sorted), draw_token(random_bits(9, step), other));
  }
}

TEST(TokenFilters, DrawReachesBothEndsAndNothingElse) {
  Candidates candidates = {{0.0f, 3, 5}, {0.0f, 8, 1}, {0.0f, 9, 2}};
  EXPECT_EQ(draw_token(0, candidates), 3);
  EXPECT_EQ(draw_token(~0ull, candidates), 9);
  // The share [5/8, 6/8) belongs to the middle one.
  EXPECT_EQ(draw_token((5ull << 61) - 1, candidates), 3);
  EXPECT_EQ(draw_token(5ull << 61, candidates), 8);
  EXPECT_EQ(draw_token((6ull << 61) - 1, candidates), 8);
  EXPECT_EQ(draw_token(6ull << 61, candidates), 9);
}

}  // namespace
}  // namespace moeflux
