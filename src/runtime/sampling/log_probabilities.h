// Log-probabilities of tokens under the model itself: from raw logits, before any sampling
// parameter.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/token_id.h"

namespace moeflux {

struct TokenLogProbability {
  TokenId id;
  float log_probability;
};

// Normalizes one row of logits once, then answers for any of its tokens. The probabilities of
// exactly the given logits add up to one: pass logits.first(n_valid) to leave padding rows out. NaN
// counts as -infinity, +infinity as the largest float. The logits must outlive the object.
class LogProbabilities {
 public:
  // Throws Error(BadInput) when no logit is above -infinity.
  explicit LogProbabilities(std::span<const float> logits);

  float of(TokenId id) const;

  // The n most likely tokens, most likely first (equals: lower id first); fewer when fewer are
  // possible.
  std::vector<TokenLogProbability> top(std::size_t n) const;

 private:
  float normalize(float logit) const;

  std::span<const float> logits_;
  // Apart, because the sum of a huge logit and a small logarithm would lose the logarithm.
  double top_;
  double log_sum_;  // log of the sum of exp(logit - top)
};

float log_probability(std::span<const float> logits, TokenId id);

}  // namespace moeflux
