#include "runtime/sampling/log_probabilities.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/portable_math.h"
#include "runtime/sampling/logit_scan.h"

namespace moeflux {
namespace {

// The sum of exp(logit - top). What is below the exponent's range adds its minimum, which is lost
// against the top's 1 in double; NaN fails the comparison and does the same.
double sum_of_exponentials(std::span<const float> logits, double top) {
  constexpr std::size_t kBlock = 64;  // the exponentials of a block run in vector registers
  std::array<double, kBlock> logs{};
  std::array<double, kBlock> sums{};
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::size_t n = std::min(kBlock, logits.size() - begin);
    logs.fill(kMinExponent);
    for (std::size_t i = 0; i < n; ++i) {
      const double x = finite_logit(logits[begin + i]) - top;
      logs[i] = x > kMinExponent ? x : kMinExponent;
    }
    for (std::size_t i = 0; i < kBlock; ++i) sums[i] += portable::scaled_exp(logs[i], 0);
  }
  double sum = 0.0;
  for (const double x : sums) sum += x;
  return sum;
}

}  // namespace

LogProbabilities::LogProbabilities(std::span<const float> logits)
    : logits_(logits), top_(0.0), log_sum_(0.0) {
  const std::size_t best = index_of_largest(logits);
  if (best == kNoIndex) {
    fail(Errc::BadInput, "no log-probabilities: all of the {} logits are NaN or -infinity",
         logits.size());
  }
  top_ = finite_logit(logits[best]);
  log_sum_ = portable::log(sum_of_exponentials(logits, top_));
}

float LogProbabilities::normalize(float logit) const {
  const double value = (finite_logit(logit) - top_) - log_sum_;
  // False for NaN, and for what does not fit into a float.
  if (!(value >= std::numeric_limits<float>::lowest()))
    return -std::numeric_limits<float>::infinity();
  return static_cast<float>(std::min(value, 0.0));
}

float LogProbabilities::of(TokenId id) const {
  MOEFLUX_ASSERT(id >= 0 && static_cast<std::size_t>(id) < logits_.size());
  return normalize(logits_[static_cast<std::size_t>(id)]);
}

std::vector<TokenLogProbability> LogProbabilities::top(std::size_t n) const {
  std::vector<Candidate> candidates;
  select_largest(logits_, std::min(n, logits_.size()), candidates);
  std::sort(candidates.begin(), candidates.end(), more_likely);
  std::vector<TokenLogProbability> result;
  result.reserve(candidates.size());
  for (const Candidate& c : candidates) result.push_back({c.id, normalize(c.logit)});
  return result;
}

float log_probability(std::span<const float> logits, TokenId id) {
  return LogProbabilities(logits).of(id);
}

}  // namespace moeflux
