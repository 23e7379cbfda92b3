// Chooses the next token from a row of logits.
//
// The choice is a pure function of the input and the parameters, the same on every machine. Nothing
// is carried from one call to the next but scratch memory (about 24 bytes per vocabulary entry,
// reused), so one Sampler may serve any number of sessions of one thread. Because step k draws the
// same random number whatever happened before it, a speculated token can be checked by sampling: it
// is accepted if it is what sample() returns at its position.
//
// The steps, in the order of the reference implementation (Hugging Face transformers), so that the
// values shipped with a checkpoint mean here what they meant to its authors:
//    1. never sampled: ids >= n_valid, masked ids, NaN, -infinity (+infinity is the largest float)
//    2. logit bias is added
//    3. repetition penalty: divides a positive logit, multiplies a negative one; once per token
//    4. frequency penalty is subtracted once per occurrence, presence penalty once per token
//    5. temperature 0: the largest logit, the lowest id of equals, and nothing below applies
//    6. logits are divided by the temperature
//    7. top-k, 8. top-p, 9. min-p, 10. typical: each on what the one before left, renormalized
//   11. draw
// Where a filter's edge falls between equally likely tokens the lower ids stay (the reference keeps
// all of them for top-k and typical). Tokens with less than about 2^-45 of the top token's
// probability (for a vocabulary of 250 thousand; finer for smaller ones) count as impossible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "runtime/sampling/logit_scan.h"
#include "runtime/sampling/sampling_params.h"

namespace moeflux {

struct SamplerInput {
  std::span<const float> logits = {};  // [n_vocab], as the model computed them

  // Ids from here on are padding rows of the head that no tokenizer knows; at most n_vocab counts.
  std::size_t n_valid = std::numeric_limits<std::size_t>::max();

  // [n_valid] or empty: a zero forbids the id (grammars).
  std::span<const std::uint8_t> allowed = {};

  std::span<const TokenId> history = {};  // the prompt, then the tokens generated so far
  std::size_t n_prompt = 0;               // how many of them are the prompt
  std::uint64_t step = 0;  // which random number of the seed; counts generated tokens
};

struct TokenProbability {
  TokenId id;
  double probability;
};

class Sampler {
 public:
  // Throws Error(BadInput) for invalid parameters, and if no token is left to choose from (says
  // why).
  TokenId sample(const SamplerInput& input, const SamplingParams& params);

  // What sample() draws from after all filters, most likely first.
  std::vector<TokenProbability> distribution(const SamplerInput& input,
                                             const SamplingParams& params);

 private:
  std::span<const float> adjust(const SamplerInput& input, const SamplingParams& params);
  void apply_repetition_penalty(std::span<const TokenId> tokens, float penalty);
  void apply_count_penalties(std::span<const TokenId> tokens, float frequency, float presence);
  void collect_candidates(std::span<const float> logits, std::size_t top,
                          const SamplingParams& params);

  std::vector<float> adjusted_;  // [n_valid], a copy of the logits when something changes them
  std::vector<std::uint32_t> counts_;  // [n_valid], all zero between calls
  std::vector<Candidate> candidates_;
};

}  // namespace moeflux
