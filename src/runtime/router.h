// Which experts a token goes to, and with what weight: pure arithmetic on the router's logits.
#pragma once

#include <cstdint>
#include <vector>

#include "model/layer_spec.h"

namespace moeflux {

// Memory route() works in, kept between calls so that a pass allocates nothing.
struct RouterScratch {
  std::vector<float> scores;  // [n_experts]
  std::vector<float> choice;  // [n_experts], scores with bias, minus infinity where not allowed
  std::vector<float> groups;  // [n_groups]
  std::vector<bool> taken;
};

// logits: [n_experts]; correction_bias: [n_experts], or null when the spec has none.
// Writes top_k expert ids, best first (ties: lower id first), and their weights.
void route(const MoeSpec& spec, const float* logits, const float* correction_bias,
           std::int32_t* ids, float* weights, RouterScratch& scratch);

}  // namespace moeflux
