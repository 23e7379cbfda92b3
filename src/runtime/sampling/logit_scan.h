// Passes over a whole row of logits: the largest one, the k largest, all above a floor.
//
// NaN and -infinity are never found by any of them. Whatever the standard library, the same tokens
// come out; only the order in which select_largest() leaves them is unspecified.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/token_id.h"

namespace moeflux {

struct Candidate {
  float logit;
  TokenId id;
  std::uint64_t weight;  // proportional to the probability; see token_filters.h
};

// The order "most likely first". Equal logits: the lower id first. Total, so no tie is left to
// chance.
inline bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// An overflowed logit of +infinity means "certain", as the largest float does.
inline double finite_logit(float logit) {
  return std::min(logit, std::numeric_limits<float>::max());
}

// Exponents of weights and probabilities are cut off here: what is below counts nothing beside the
// top's 1.
inline constexpr double kMinExponent = -64.0;

inline constexpr std::size_t kNoIndex = std::numeric_limits<std::size_t>::max();

// Index of the largest logit, the lowest of equals; kNoIndex when there is none above -infinity.
std::size_t index_of_largest(std::span<const float> logits);

// Replaces `out` by the `k` first candidates in more_likely() order (fewer when there are fewer),
// in any order.
void select_largest(std::span<const float> logits, std::size_t k, std::vector<Candidate>& out);

// Replaces `out` by the candidates with a logit above `floor`, by ascending id.
void select_above(std::span<const float> logits, float floor, std::vector<Candidate>& out);

}  // namespace moeflux
