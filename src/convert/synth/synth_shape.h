// The shapes that synthetic models can have: those of released models, and tiny ones for tests.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "model/layer_spec.h"

namespace moeflux {

// What a shape's blocks have and what their tensors are called, where its config does not say it.
struct SynthBlocks {
  std::string prefix = {};  // of every tensor
  std::string mlp = "mlp.";
  // Below `mlp`; empty: there is none.
  std::string router = "gate";
  std::string correction_bias = {};
  std::string experts = "switch_mlp";
  std::string shared = {};
  bool shared_is_gated = false;
  QkNorm qk_norm = QkNorm::PerHead;
  bool has_output_gate = false;
  bool has_bias = false;        // of queries, keys and values
  bool has_all_biases = false;  // also of every other product but the head
  bool has_sinks = false;
  bool has_grouped_delta = false;  // one projection holds q, k, v and z of each key head
  bool has_clamped_swiglu = false;
  bool has_mtp = false;  // may have the head for multi-token prediction
  int dense_bits = 4;    // of dense matrices; 16: BF16
  bool has_mxfp4_experts = false;
};

struct SynthShape {
  std::string name;
  // config.json as the MLX release has it, but for "quantization" (synth_plan.h).
  Json config;
  SynthBlocks blocks = {};
  int depth = 0;         // layers of the model; the config may have fewer
  int router_bits = 16;  // of the routers and of the shared experts' gates; 16: not quantized
  DType a_log = DType::BF16;
  bool mtp = false;  // has the head for multi-token prediction
};

// Names a user may give; those of tests work, too, but are not listed.
std::vector<std::string> synth_shape_names();

struct SynthSize {
  std::optional<int> n_layers;  // none: as many as the model has
  bool mtp = false;
};
// Throws Error when there is no such shape, or it has fewer layers or no such head.
SynthShape synth_shape(std::string_view name, const SynthSize& size);

}  // namespace moeflux
