#include "runtime/sampling/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "runtime/sampling/counter_rng.h"
#include "runtime/sampling/token_filters.h"

namespace moeflux {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

std::size_t valid_count(const SamplerInput& input) {
  return std::min(input.n_valid, input.logits.size());
}

// What the penalties look at: the last tokens of the history, or of its generated part.
struct PenaltyWindow {
  std::span<const TokenId> tokens;
  std::span<const TokenId> generated;
};

PenaltyWindow penalty_window(const SamplerInput& input, int window) {
  MOEFLUX_ASSERT(input.n_prompt <= input.history.size());
  const std::size_t wanted = window < 0 ? input.history.size() : static_cast<std::size_t>(window);
  const std::size_t begin = input.history.size() - std::min(wanted, input.history.size());
  return {input.history.subspan(begin), input.history.subspan(std::max(begin, input.n_prompt))};
}

bool changes_logits(const SamplerInput& input, const SamplingParams& params) {
  return !input.allowed.empty() || !params.logit_bias.empty() || params.repetition_penalty != 1.0 ||
         params.presence_penalty != 0.0 || params.frequency_penalty != 0.0;
}

// Called with the logits after masks, biases and penalties; none of them can be sampled.
[[noreturn]] void fail_without_candidates(const SamplerInput& input,
                                          std::span<const float> logits) {
  std::size_t n_masked = 0, n_nan = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!input.allowed.empty() && input.allowed[i] == 0) {
      ++n_masked;
    } else if (std::isnan(logits[i])) {
      ++n_nan;
    }
  }
  fail(Errc::BadInput,
       "no token can be sampled: of {} tokens {} are forbidden by the mask, {} have a NaN logit "
       "and {} a logit of "
       "-infinity",
       logits.size(), n_masked, n_nan, logits.size() - n_masked - n_nan);
}

}  // namespace

void Sampler::apply_repetition_penalty(std::span<const TokenId> tokens, float penalty) {
  for (const TokenId id : tokens) {
    const auto i = static_cast<std::size_t>(id);
    if (i >= adjusted_.size() || counts_[i] != 0) continue;
    counts_[i] = 1;
    float& logit = adjusted_[i];
    logit = logit < 0.0f ? logit * penalty : logit / penalty;
  }
  for (const TokenId id : tokens) {
    if (static_cast<std::size_t>(id) < adjusted_.size()) counts_[static_cast<std::size_t>(id)] = 0;
  }
}

void Sampler::apply_count_penalties(std::span<const TokenId> tokens, float frequency,
                                    float presence) {
  for (const TokenId id : tokens) {
    if (static_cast<std::size_t>(id) < adjusted_.size()) ++counts_[static_cast<std::size_t>(id)];
  }
  for (const TokenId id : tokens) {
    const auto i = static_cast<std::size_t>(id);
    if (i >= adjusted_.size() || counts_[i] == 0) continue;
    adjusted_[i] -= frequency * static_cast<float>(counts_[i]);
    adjusted_[i] -= presence;
    counts_[i] = 0;
  }
}

std::span<const float> Sampler::adjust(const SamplerInput& input, const SamplingParams& params) {
  const std::span<const float> logits = input.logits.first(valid_count(input));
  if (!changes_logits(input, params)) return logits;

  adjusted_.assign(logits.begin(), logits.end());
  counts_.resize(logits.size());
  for (const auto& [id, bias] : params.logit_bias) {
    if (static_cast<std::size_t>(id) >= adjusted_.size()) {
      fail(Errc::BadInput, "logit_bias: {} is not a token of this model (0 to {})", id,
           static_cast<std::int64_t>(adjusted_.size()) - 1);
    }
    adjusted_[static_cast<std::size_t>(id)] += bias;
  }
  const PenaltyWindow window = penalty_window(input, params.penalty_window);
  if (params.repetition_penalty != 1.0) {
    apply_repetition_penalty(window.tokens, static_cast<float>(params.repetition_penalty));
  }
  if (params.presence_penalty != 0.0 || params.frequency_penalty != 0.0) {
    apply_count_penalties(window.generated, static_cast<float>(params.frequency_penalty),
                          static_cast<float>(params.presence_penalty));
  }
  if (!input.allowed.empty()) {
    MOEFLUX_ASSERT(input.allowed.size() >= adjusted_.size());
    for (std::size_t i = 0; i < adjusted_.size(); ++i) {
      adjusted_[i] = input.allowed[i] != 0 ? adjusted_[i] : kForbidden;
    }
  }
  return adjusted_;
}

void Sampler::collect_candidates(std::span<const float> logits, std::size_t top,
                                 const SamplingParams& params) {
  const WeightScale scale(logits[top], params.temperature, logits.size());
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size()) {
    select_largest(logits, static_cast<std::size_t>(params.top_k), candidates_);
  } else {
    int log2_floor = -(scale.bits + 1);  // less rounds to a weight of zero
    // Without top-p nothing needs the mass of what min-p is going to drop.
    if (params.min_p > 0.0 && params.top_p >= 1.0)
      log2_floor = std::max(log2_floor, std::ilogb(params.min_p));
    select_above(logits, scale.floor_for(log2_floor), candidates_);
  }
  assign_weights(scale, candidates_);
  if (params.top_p < 1.0) keep_top_p(params.top_p, scale, candidates_);
  if (params.min_p > 0.0) keep_min_p(params.min_p, scale, candidates_);
  if (params.typical_p < 1.0) keep_typical(params.typical_p, scale, candidates_);
}

TokenId Sampler::sample(const SamplerInput& input, const SamplingParams& params) {
  params.validate();
  const std::span<const float> logits = adjust(input, params);
  const std::size_t top = index_of_largest(logits);
  if (top == kNoIndex) fail_without_candidates(input, logits);
  if (params.temperature == 0.0) return static_cast<TokenId>(top);
  collect_candidates(logits, top, params);
  return draw_token(random_bits(params.seed, input.step), candidates_);
}

std::vector<TokenProbability> Sampler::distribution(const SamplerInput& input,
                                                    const SamplingParams& params) {
  params.validate();
  const std::span<const float> logits = adjust(input, params);
  const std::size_t top = index_of_largest(logits);
  if (top == kNoIndex) fail_without_candidates(input, logits);
  if (params.temperature == 0.0) return {{static_cast<TokenId>(top), 1.0}};
  collect_candidates(logits, top, params);
  std::sort(candidates_.begin(), candidates_.end(), more_likely);
  const auto total = static_cast<double>(total_weight(candidates_));
  std::vector<TokenProbability> result;
  result.reserve(candidates_.size());
  for (const Candidate& c : candidates_)
    result.push_back({c.id, static_cast<double>(c.weight) / total});
  return result;
}

}  // namespace moeflux
