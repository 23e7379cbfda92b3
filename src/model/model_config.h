// Everything about a model that is not a weight. Immutable once validate() has passed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/layer_spec.h"

namespace moeflux {

struct ModelConfig {
  std::string family;
  int d_model = 0;
  int n_vocab = 0;         // rows of the embedding; may exceed the tokenizer's ids
  int context_length = 0;  // positions the model was made for
  float norm_eps = 0;
  float embed_scale = 1;  // of the embeddings, on their way into the stream
  float logit_cap = 0;    // logits are cap * tanh(logit / cap); 0: as they are
  std::vector<LayerSpec> layers;
  std::optional<LayerSpec> mtp;  // the decoder layer of the multi-token-prediction head

  int n_layers() const { return static_cast<int>(layers.size()); }
};

// Throws Error(BadInput) with `origin` in the message when sizes contradict each other or are
// absurd. After this, products of sizes fit into 63 bits and every division the forward pass makes
// is exact.
void validate(const ModelConfig& config, const std::string& origin);

}  // namespace moeflux
