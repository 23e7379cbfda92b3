// Choosing experts: which, in which order, with which weights.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "backends/backend.h"
#include "support/operands.h"
#include "support/random.h"

namespace moeflux {
namespace {

using test::operand;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Routed run(const MoeSpec& spec, const std::vector<float>& logits,
           const std::vector<float>& bias = {}) {
  Routed routed{std::vector<std::int32_t>(static_cast<std::size_t>(spec.top_k), -1),
                std::vector<float>(static_cast<std::size_t>(spec.top_k))};
  // One for all, as in a pass: what it keeps is of layers of different sizes.
  static const std::unique_ptr<Backend> backend = make_backend({.n_threads = 2});
  backend->route({.router = &spec.router,
                  .logits = operand(logits),
                  .correction_bias = bias.empty() ? View{} : operand(bias),
                  .ids = operand(routed.ids),
                  .weights = operand(routed.weights)});
  return routed;
}

MoeSpec softmax_spec(int n_experts, int top_k) {
  return {.n_experts = n_experts, .top_k = top_k, .d_expert = 1, .router = {}};
}

MoeSpec sigmoid_spec(int n_experts, int top_k, int n_groups = 1, int top_groups = 1) {
  return {.n_experts = n_experts,
          .top_k = top_k,
          .d_expert = 1,
          .router = {.scoring = RouterScoring::Sigmoid,
                     .has_correction_bias = true,
                     .n_groups = n_groups,
                     .top_groups = top_groups}};
}

float logit(double p) {
  return static_cast<float>(std::log(p / (1 - p)));
}

TEST(Router, SoftmaxRenormalised) {
  // Odds 1 : 2 : 4 : 8; the two best are 8 and 4 of 12.
  const Routed r = run(softmax_spec(4, 2), {0, std::log(2.0f), std::log(4.0f), std::log(8.0f)});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{3, 2}));
  EXPECT_NEAR(r.weights[0], 8.0 / 12, 1e-6);
  EXPECT_NEAR(r.weights[1], 4.0 / 12, 1e-6);
}

TEST(Router, SoftmaxKeptAsItIs) {
  MoeSpec spec = softmax_spec(4, 2);
  spec.router.normalize = false;
  spec.router.scale = 3;
  const Routed r = run(spec, {0, std::log(2.0f), std::log(4.0f), std::log(8.0f)});
  EXPECT_NEAR(r.weights[0], 3 * 8.0 / 15, 1e-6);
  EXPECT_NEAR(r.weights[1], 3 * 4.0 / 15, 1e-6);
}

TEST(Router, FactorsOfExpertsComeLast) {
  const std::vector<float> logits{0, std::log(2.0f), std::log(4.0f), std::log(8.0f)};
  const std::vector<float> factors{5, 6, 0.5f, 3};
  const MoeSpec spec = softmax_spec(4, 2);
  std::vector<std::int32_t> ids(2);
  std::vector<float> weights(2);
  const auto backend = make_backend({.n_threads = 1});
  backend->route({.router = &spec.router,
                  .logits = operand(logits),
                  .expert_scales = operand(factors),
                  .ids = operand(ids),
                  .weights = operand(weights)});
  EXPECT_EQ(ids, (std::vector<std::int32_t>{3, 2}));
  EXPECT_NEAR(weights[0], 3 * 8.0 / 12, 1e-6);
  EXPECT_NEAR(weights[1], 0.5 * 4.0 / 12, 1e-6);
}

TEST(Router, SoftmaxOfLargeLogitsDoesNotOverflow) {
  const Routed r = run(softmax_spec(3, 2), {30000, 29999, -30000});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{0, 1}));
  EXPECT_NEAR(r.weights[0], 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(r.weights[0] + r.weights[1], 1, 1e-6);
}

TEST(Router, SigmoidBiasChoosesButDoesNotWeigh) {
  const std::vector<float> logits{logit(0.9), logit(0.8), logit(0.5), logit(0.2)};
  EXPECT_EQ(run(sigmoid_spec(4, 2), logits, {0, 0, 0, 0}).ids, (std::vector<std::int32_t>{0, 1}));
  // 0.2 + 1 = 1.2 is now best, 0.9 second; weights are 0.2 and 0.9 of 1.1.
  const Routed r = run(sigmoid_spec(4, 2), logits, {0, 0, 0, 1});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{3, 0}));
  EXPECT_NEAR(r.weights[0], 0.2 / 1.1, 1e-6);
  EXPECT_NEAR(r.weights[1], 0.9 / 1.1, 1e-6);
}

TEST(Router, ScaleComesAfterNormalising) {
  MoeSpec spec = sigmoid_spec(3, 2);
  spec.router.scale = 2.5f;
  const Routed r = run(spec, {logit(0.6), logit(0.3), logit(0.1)}, {0, 0, 0});
  EXPECT_NEAR(r.weights[0], 2.5 * 0.6 / 0.9, 1e-6);
  EXPECT_NEAR(r.weights[1], 2.5 * 0.3 / 0.9, 1e-6);
  spec.router.normalize = false;
  const Routed raw = run(spec, {logit(0.6), logit(0.3), logit(0.1)}, {0, 0, 0});
  EXPECT_NEAR(raw.weights[0], 2.5 * 0.6, 1e-6);
  EXPECT_NEAR(raw.weights[1], 2.5 * 0.3, 1e-6);
}

TEST(Router, GroupsAreScoredByTheirTwoBest) {
  // Groups of 3: {0.9 0.1 0.1} = 1.0, {0.6 0.5 0.4} = 1.1, {0.55 0.5 0.5} = 1.05. The best single
  // expert lies in the worst group and is not reachable.
  const std::vector<float> logits{logit(0.9), logit(0.1),  logit(0.1),   logit(0.6), logit(0.5),
                                  logit(0.4), logit(0.55), logit(0.501), logit(0.5)};
  const std::vector<float> none(9, 0.0f);
  EXPECT_EQ(run(sigmoid_spec(9, 3, 3, 2), logits, none).ids, (std::vector<std::int32_t>{3, 6, 7}));
  EXPECT_EQ(run(sigmoid_spec(9, 3, 3, 1), logits, none).ids, (std::vector<std::int32_t>{3, 4, 5}));
  EXPECT_EQ(run(sigmoid_spec(9, 3, 3, 3), logits, none).ids, (std::vector<std::int32_t>{0, 3, 6}));
}

TEST(Router, TheBiasCountsInTheScoreOfAGroup) {
  const std::vector<float> logits(4, logit(0.5));
  const Routed r = run(sigmoid_spec(4, 2, 2, 1), logits, {0, 0, -0.1f, 0.2f});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{3, 2}));
  EXPECT_NEAR(r.weights[0], 0.5, 1e-6);
}

// Masked with minus infinity, not with zero: kept experts may have negative scores.
TEST(Router, NegativeScoresOfKeptGroupsBeatDroppedGroups) {
  const std::vector<float> logits(4, logit(0.5));
  const Routed r = run(sigmoid_spec(4, 2, 2, 1), logits, {-0.9f, -0.9f, 0.6f, -3.0f});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{0, 1}));  // -0.8 beats 1.1 - 2.5 = -1.4
}

TEST(Router, TiesGoToTheLowerId) {
  EXPECT_EQ(run(softmax_spec(5, 3), {1, 2, 2, 2, 2}).ids, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(
      run(sigmoid_spec(6, 2, 3, 1), std::vector<float>(6, 0.0f), std::vector<float>(6, 0.0f)).ids,
      (std::vector<std::int32_t>{0, 1}));
}

TEST(Router, SigmoidsThatUnderflowDoNotDivideByZero) {
  const Routed r = run(sigmoid_spec(3, 2), {-200, -200, -200}, {0, 0, 0});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{0, 1}));
  for (const float w : r.weights) EXPECT_EQ(w, 0.0f);
}

TEST(Router, AllOfTheExperts) {
  const Routed r = run(softmax_spec(3, 3), {0, 2, 1});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{1, 2, 0}));
  EXPECT_NEAR(r.weights[0] + r.weights[1] + r.weights[2], 1, 1e-6);
}

// Whatever comes in, the ids can be used as indices and none is used twice.
TEST(Router, AnyNumbersGiveDistinctValidIds) {
  test::Random random(11);
  for (int round = 0; round < 3000; ++round) {
    const int groups = static_cast<int>(random.integer(1, 4));
    const int n_experts = groups * static_cast<int>(random.integer(2, 6));
    const int kept = static_cast<int>(random.integer(1, groups));
    MoeSpec spec = sigmoid_spec(
        n_experts, static_cast<int>(random.integer(1, n_experts / groups * kept)), groups, kept);
    if (random.chance(0.5)) spec.router.scoring = RouterScoring::Softmax;
    std::vector<float> logits = random.floats(n_experts, 10), bias = random.floats(n_experts, 1);
    for (auto* values : {&logits, &bias}) {
      for (float& value : *values) {
        if (!random.chance(0.2)) continue;
        const float odd[] = {kNan, kInf, -kInf, 3e38f, -3e38f, 0.0f, 1e-45f};
        value = odd[random.integer(0, 6)];
      }
    }
    const Routed r = run(spec, logits, bias);
    const std::set<std::int32_t> distinct(r.ids.begin(), r.ids.end());
    ASSERT_EQ(distinct.size(), r.ids.size());
    ASSERT_GE(*distinct.begin(), 0);
    ASSERT_LT(*distinct.rbegin(), n_experts);
  }
}

// Against a second way to the same choice: sort everything.
TEST(Router, AgreesWithSorting) {
  test::Random random(12);
  for (int round = 0; round < 500; ++round) {
    const int n_experts = static_cast<int>(random.integer(1, 64));
    const int top_k = static_cast<int>(random.integer(1, n_experts));
    const std::vector<float> logits = random.floats(n_experts, 4);
    std::vector<std::int32_t> order(static_cast<std::size_t>(n_experts));
    for (int e = 0; e < n_experts; ++e) order[static_cast<std::size_t>(e)] = e;
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return logits[a] > logits[b]; });
    order.resize(static_cast<std::size_t>(top_k));
    const Routed r = run(softmax_spec(n_experts, top_k), logits);
    EXPECT_EQ(r.ids, order);
    double sum = 0;
    for (const std::int32_t e : order) sum += std::exp(static_cast<double>(logits[e]));
    for (int slot = 0; slot < top_k; ++slot) {
      EXPECT_NEAR(r.weights[slot], std::exp(static_cast<double>(logits[order[slot]])) / sum, 1e-6);
    }
  }
}

// Logits choose, and the softmax is over the chosen alone.
MoeSpec chosen_spec(int n_experts, int top_k) {
  MoeSpec spec = softmax_spec(n_experts, top_k);
  spec.router.scores_chosen = true;
  return spec;
}

TEST(RouterScoresChosen, SoftmaxOfTheChosen) {
  for (const bool normalize : {true, false}) {  // they sum to 1 anyway
    MoeSpec spec = chosen_spec(4, 2);
    spec.router.normalize = normalize;
    spec.router.scale = 3;
    const Routed r = run(spec, {std::log(8.0f), 0, std::log(2.0f), std::log(4.0f)});
    EXPECT_EQ(r.ids, (std::vector<std::int32_t>{0, 3}));
    EXPECT_NEAR(r.weights[0], 3 * 8.0 / 12, 1e-6);
    EXPECT_NEAR(r.weights[1], 3 * 4.0 / 12, 1e-6);
  }
}

TEST(RouterScoresChosen, OneExpertHasAllTheWeight) {
  const Routed r = run(chosen_spec(3, 1), {-5, -7, -4});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{2}));
  EXPECT_EQ(r.weights[0], 1.0f);
}

TEST(RouterScoresChosen, LargeLogitsDoNotOverflow) {
  const Routed r = run(chosen_spec(3, 2), {-30000, -30001, -60000});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{0, 1}));
  EXPECT_NEAR(r.weights[0], 1 / (1 + std::exp(-1.0)), 1e-6);
}

TEST(RouterScoresChosen, TheBiasChoosesButDoesNotWeigh) {
  const Routed r = run(chosen_spec(3, 2), {0, std::log(3.0f), std::log(2.0f)}, {5, 0, 0});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{0, 1}));
  EXPECT_NEAR(r.weights[0], 1.0 / 4, 1e-6);
  EXPECT_NEAR(r.weights[1], 3.0 / 4, 1e-6);
}

TEST(RouterScoresChosen, Sigmoid) {
  MoeSpec spec = chosen_spec(3, 2);
  spec.router.scoring = RouterScoring::Sigmoid;
  const Routed r = run(spec, {logit(0.6), logit(0.1), logit(0.3)});
  EXPECT_EQ(r.ids, (std::vector<std::int32_t>{0, 2}));
  EXPECT_NEAR(r.weights[0], 0.6 / 0.9, 1e-6);
  EXPECT_NEAR(r.weights[1], 0.3 / 0.9, 1e-6);
}

// Against sorting and a softmax in double. Without normalising it is not the softmax of all.
TEST(RouterScoresChosen, AgreesWithSorting) {
  test::Random random(13);
  for (int round = 0; round < 500; ++round) {
    const int n_experts = static_cast<int>(random.integer(1, 64));
    const int top_k = static_cast<int>(random.integer(1, n_experts));
    MoeSpec spec = chosen_spec(n_experts, top_k);
    spec.router.normalize = random.chance(0.5);
    const std::vector<float> logits = random.floats(n_experts, 4);
    std::vector<std::int32_t> order(static_cast<std::size_t>(n_experts));
    for (int e = 0; e < n_experts; ++e) order[static_cast<std::size_t>(e)] = e;
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return logits[a] > logits[b]; });
    order.resize(static_cast<std::size_t>(top_k));
    const Routed r = run(spec, logits);
    EXPECT_EQ(r.ids, order);
    double sum = 0;
    for (const std::int32_t e : order) sum += std::exp(static_cast<double>(logits[e]));
    for (int slot = 0; slot < top_k; ++slot) {
      EXPECT_NEAR(r.weights[slot], std::exp(static_cast<double>(logits[order[slot]])) / sum, 1e-6);
    }
  }
}

// Rows that lie apart, few and so many that threads share them: each as alone.
TEST(Router, RowsDoNotDependOnEachOther) {
  test::Random random(14);
  constexpr std::int64_t kExperts = 24, kStride = kExperts + 3;
  for (const bool chosen : {false, true}) {
    MoeSpec spec = sigmoid_spec(kExperts, 5, 4, 2);
    spec.router.scores_chosen = chosen;
    const std::vector<float> bias = random.floats(kExperts);
    for (const std::int64_t n : {0, 1, 3, 15, 16, 50}) {
      const std::vector<float> logits = random.floats(std::max<std::int64_t>(n, 1) * kStride, 4);
      for (const int n_threads : {1, 3}) {
        std::vector<std::int32_t> ids(static_cast<std::size_t>(n * 5));
        std::vector<float> weights(ids.size());
        View rows = operand(logits.data(), n, kExperts, kStride), chosen_ids = operand(ids);
        make_backend({.n_threads = n_threads})
            ->route({.router = &spec.router,
                     .logits = rows,
                     .correction_bias = operand(bias),
                     .ids = chosen_ids.reshaped(n, 5),
                     .weights = operand(weights.data(), n, 5)});
        for (std::int64_t i = 0; i < n; ++i) {
          const float* row = logits.data() + i * kStride;
          const Routed alone = run(spec, std::vector<float>(row, row + kExperts), bias);
          for (std::int64_t slot = 0; slot < 5; ++slot) {
            EXPECT_EQ(ids[i * 5 + slot], alone.ids[slot]);
            EXPECT_EQ(weights[i * 5 + slot], alone.weights[slot]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace moeflux
