#include "runtime/router.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/portable_math.h"

namespace moeflux {
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

void score(const MoeSpec& spec, const float* logits, std::vector<float>& scores) {
  if (spec.router.scoring == RouterScoring::Sigmoid) {
    for (int e = 0; e < spec.n_experts; ++e) scores.push_back(portable::sigmoid(logits[e]));
    return;
  }
  const float top = *std::max_element(logits, logits + spec.n_experts);
  float sum = 0;
  for (int e = 0; e < spec.n_experts; ++e)
    sum += scores.emplace_back(portable::exp(logits[e] - top));
  for (float& s : scores) s /= sum;
}

}  // namespace

void route(const MoeSpec& spec, const float* logits, const float* correction_bias,
           std::int32_t* ids, float* weights, RouterScratch& s) {
  const RouterSpec& router = spec.router;
  s.scores.clear();
  score(spec, logits, s.scores);
  s.choice = s.scores;
  if (correction_bias != nullptr) {
    for (std::size_t e = 0; e < s.choice.size(); ++e) s.choice[e] += correction_bias[e];
  }
  if (router.n_groups > 1) keep_best_groups(router, s);

  s.taken.assign(s.choice.size(), false);
  float sum = 1e-20f;  // as the reference: keeps a sum of zeros from dividing by zero
  for (int slot = 0; slot < spec.top_k; ++slot) {
    const std::size_t expert = take_largest(s.choice, s.taken);
    ids[slot] = static_cast<std::int32_t>(expert);
    weights[slot] = s.scores[expert];
    sum += weights[slot];
  }
  for (int slot = 0; slot < spec.top_k; ++slot) {
    if (router.normalize) weights[slot] /= sum;
    weights[slot] *= router.scale;
  }
}

}  // namespace moeflux
