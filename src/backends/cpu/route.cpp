// Choosing experts: scores, groups, the best of them, their weights.
#include <algorithm>
#include <limits>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "base/portable_math.h"

namespace moeflux::cpu {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The largest value not taken yet, the first of equals. Finds one whatever the values are.
std::size_t take_largest(const std::vector<float>& values, std::vector<bool>& taken) {
  std::size_t best = values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!taken[i] && (best == values.size() || values[i] > values[best])) best = i;
  }
  taken[best] = true;
  return best;
}

// Sum of the two best experts of each group.
void score_groups(const RouterSpec& router, const std::vector<float>& choice,
                  std::vector<float>& groups) {
  const std::size_t group_size = choice.size() / static_cast<std::size_t>(router.n_groups);
  groups.clear();
  for (std::size_t begin = 0; begin < choice.size(); begin += group_size) {
    float first = kNever, second = kNever;
    for (std::size_t e = begin; e < begin + group_size; ++e) {
      if (choice[e] > first) {
        second = first;
        first = choice[e];
      } else if (choice[e] > second) {
        second = choice[e];
      }
    }
    groups.push_back(first + second);
  }
}

// Drops every expert outside of the best groups.
void keep_best_groups(const RouterSpec& router, RouterScratch& s) {
  score_groups(router, s.choice, s.groups);
  const std::size_t group_size = s.choice.size() / s.groups.size();
  s.taken.assign(s.groups.size(), false);
  for (int i = 0; i < router.top_groups; ++i) take_largest(s.groups, s.taken);
  for (std::size_t e = 0; e < s.choice.size(); ++e) {
    if (!s.taken[e / group_size]) s.choice[e] = kNever;
  }
}

// Scores of logits, of all or of the chosen.
void score(RouterScoring scoring, const float* logits, std::size_t n, std::vector<float>& scores) {
  scores.clear();
  if (scoring == RouterScoring::Sigmoid) {
    for (std::size_t e = 0; e < n; ++e) scores.push_back(portable::sigmoid(logits[e]));
    return;
  }
  const float top = *std::max_element(logits, logits + n);
  float sum = 0;
  for (std::size_t e = 0; e < n; ++e) sum += scores.emplace_back(portable::exp(logits[e] - top));
  for (float& s : scores) s /= sum;
}

void route_token(const RouterSpec& router, std::span<const float> logits,
                 const float* correction_bias, const float* expert_scales,
                 std::span<std::int32_t> ids, float* weights, RouterScratch& s) {
  if (router.scores_chosen) {
    s.choice.assign(logits.begin(), logits.end());
  } else {
    score(router.scoring, logits.data(), logits.size(), s.scores);
    s.choice = s.scores;
  }
  if (correction_bias != nullptr) {
    for (std::size_t e = 0; e < s.choice.size(); ++e) s.choice[e] += correction_bias[e];
  }
  if (router.n_groups > 1) keep_best_groups(router, s);

  s.taken.assign(s.choice.size(), false);
  for (std::size_t slot = 0; slot < ids.size(); ++slot) {
    const std::size_t expert = take_largest(s.choice, s.taken);
    ids[slot] = static_cast<std::int32_t>(expert);
    weights[slot] = router.scores_chosen ? logits[expert] : s.scores[expert];
  }
  if (router.scores_chosen) {
    score(router.scoring, weights, ids.size(), s.scores);
    std::copy(s.scores.begin(), s.scores.end(), weights);
  }
  float sum = 1e-20f;  // as the reference: keeps a sum of zeros from dividing by zero
  for (std::size_t slot = 0; slot < ids.size(); ++slot) sum += weights[slot];
  for (std::size_t slot = 0; slot < ids.size(); ++slot) {
    if (router.normalize) weights[slot] /= sum;
    weights[slot] *= router.scale;
    if (expert_scales != nullptr) weights[slot] *= expert_scales[ids[slot]];
  }
}

}  // namespace

void CpuBackend::route(const RouteOp& op) {
  constexpr std::int64_t kWorthSharing = 16;  // tokens
  MOEFLUX_ASSERT(op.ids.is_packed() && op.weights.is_packed());
  const std::int64_t n = op.logits.rows, top_k = op.ids.cols;
  const auto route_rows = [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t i = begin; i < end; ++i) {
      route_token(
          *op.router,
          {floats(op.logits) + i * op.logits.stride, static_cast<std::size_t>(op.logits.cols)},
          floats(op.correction_bias), floats(op.expert_scales),
          {ints(op.ids) + i * top_k, static_cast<std::size_t>(top_k)},
          floats(op.weights) + i * top_k, router_scratch_[static_cast<std::size_t>(worker)]);
    }
  };
  if (n < kWorthSharing) return route_rows(0, n, 0);
  pool_.parallel_for(n, (n + pool_.size() - 1) / pool_.size(), route_rows);
}

}  // namespace moeflux::cpu
