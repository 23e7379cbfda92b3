// Every tensor of a synthetic model, under the names of its MLX release, as recipes that make
// activations behave: the residual stream neither grows nor vanishes, logits have a sane spread,
// and routers choose as they are told.
//
// The residual stream has three kinds of channels:
//   constant   the first 64 hold the same number in every token, because embeddings have it and
//              nothing writes to them. Weights on them are biases: the only way to give an expert
//              its popularity, as routers have none of their own.
//   slow       the next 64 or 128: only mixers write to them. Mixers average over the last tokens,
//              some over few and some over many, so these channels change slowly from token to
//              token, as the topic of a text does.
//   the rest   what is particular to the token, and what layers make of it.
// A router's logit is popularity + slow part + rest, the last two random per expert. Without skew
// there is only the rest: every expert is as likely as the others, and tokens choose independently.
// With skew Z, popularity falls with the logarithm of a random rank, another one in each layer, so
// that an expert is chosen about as often as a Zipf law of exponent Z says, and the slow part makes
// neighbouring tokens choose alike. Only routers depend on the skew. docs/LEARNED.md has what came
// out, and that a skew of 1 is most like released models.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "convert/synth/synth_shape.h"
#include "convert/synth/synth_tensor.h"

namespace moeflux {

struct SynthBank {
  std::string name;  // "language_model.model.layers.3.mlp.switch_mlp"
  int layer = 0;
  int n_experts = 0;
  std::vector<SynthMatrix> matrices;  // gate, up, down: of one expert each
};

struct SynthPlan {
  std::vector<std::variant<SynthMatrix, SynthVector>> dense;  // in the order a pass needs them
  std::vector<SynthBank> banks;
  Json config;              // config.json, complete
  std::uint64_t bytes = 0;  // of all tensors
};

struct SynthStatistics {
  double skew = 0;
  // The part of the variance of a router's noise that varies slowly, when there is a skew.
  double locality = 0.7;
  std::uint64_t seed = 0;
};
SynthPlan plan_synthesis(const SynthShape& shape, const SynthStatistics& statistics);

}  // namespace moeflux
