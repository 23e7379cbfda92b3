// The steps between logits and a token: weights, filters, draw.
//
// A weight is a probability in fixed point: an integer, so that sums of weights do not depend on
// the order in which they are added, and every filter and the draw can work on unsorted candidates
// (selection in linear time) and still give the same tokens with every standard library, compiler
// and number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/sampling/logit_scan.h"

namespace moeflux {

// How logits become weights: weight = round(2^bits * exp((logit - top_logit) / temperature)).
struct WeightScale {
  // `n_tokens`: most candidates there can be; more of them leave fewer bits for each (45 for 250
  // thousand).
  WeightScale(float top_logit, double temperature, std::size_t n_tokens);

  // (logit - top) / temperature, the log-probability relative to the top token; at most 0.
  double relative_log(float logit) const;

  // Logits up to this one weigh less than 2^log2_weight of the top weight.
  float floor_for(int log2_weight) const;

  double top;
  double inverse_temperature;
  int bits;
};

std::uint64_t total_weight(const std::vector<Candidate>& candidates);

// Sets the weights and drops the candidates whose weight rounds to zero.
void assign_weights(const WeightScale& scale, std::vector<Candidate>& candidates);

// The filters keep at least one candidate and leave the kept ones in unspecified order.

// The most likely candidates (equals: the lower id first), until their mass reaches `mass` of the
// total.
void keep_top_p(double mass, const WeightScale& scale, std::vector<Candidate>& candidates);

// Those at least `ratio` times as likely as the top token. Valid while the top token is among the
// candidates.
void keep_min_p(double ratio, const WeightScale& scale, std::vector<Candidate>& candidates);

// The candidates whose surprise is closest to the entropy (equals: the lower id first), until their
// mass reaches `mass` of the total.
void keep_typical(double mass, const WeightScale& scale, std::vector<Candidate>& candidates);

// The token at which the running sum of weights, by ascending id, first exceeds a random share of
// the total.
TokenId draw_token(std::uint64_t random, std::vector<Candidate>& candidates);

}  // namespace moeflux
