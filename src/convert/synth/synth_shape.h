// The shapes that synthetic models can have: those of released models, and tiny ones for tests.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"

namespace moeflux {

struct SynthShape {
  std::string name;
  // config.json as the MLX release has it, but for "quantization" (synth_plan.h).
  Json config;
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
// Throws Error when there is no such shape, or it has fewer layers.
SynthShape synth_shape(std::string_view name, const SynthSize& size);

}  // namespace moeflux
