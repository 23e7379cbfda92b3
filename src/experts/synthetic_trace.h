// Routing that looks like that of a large model, without the model: for judging policies at sizes
// nobody has at hand. Deterministic for a seed.
//
// A hidden state is made of the token (drawn from a Zipf-like vocabulary, of which each topic
// prefers a part), the topic, and a slowly drifting context. Every layer projects it with a random
// router and adds a fixed bias that makes some experts popular; the top_k largest are the route. So
// the causes of locality are those of real routing: popular experts, topics, words that come back,
// neighbouring tokens that are alike. How strong each is differs from layer to layer.
#pragma once

#include <cstdint>
#include <string>

#include "experts/trace.h"

namespace moeflux {

struct SyntheticTraceOptions {
  int n_layers = 40;
  int n_experts = 256;
  int top_k = 8;
  std::uint64_t record_bytes = 1'769'472;
  int n_tokens = 1000;
  int topic_tokens = 250;  // tokens until the topic changes, on average
  double skew = 1.0;       // how unequal the experts' popularity is; 0: all alike
  double locality = 1.0;   // how alike neighbouring tokens are; 0: not at all
  std::uint64_t seed = 1;
};

// Throws Error(BadInput) for sizes that make no sense. One step per token.
Trace make_synthetic_trace(const SyntheticTraceOptions& options);

}  // namespace moeflux
