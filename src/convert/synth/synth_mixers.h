// Mixers of a synthetic model. What they put out is mostly an average over the last few tokens,
// over more of them in some heads than in others: what makes the slow channels slow (synth_plan.h).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "convert/synth/synth_residual.h"
#include "convert/synth/synth_tensor.h"

namespace moeflux {

// About 1, as trained ones are; MLX stores them with the +1 of the Qwen family included.
SynthVector synth_norm(const std::string& name, std::int64_t size, std::uint64_t seed);

class SynthMixers {
 public:
  using Tensors = std::vector<std::variant<SynthMatrix, SynthVector>>;

  // `config` and `residual` (at the mixer's input) must outlive this, but not the tensors.
  SynthMixers(const Json& config, const SynthResidual& residual, std::uint64_t seed, DType a_log)
      : config_(config), residual_(residual), seed_(seed), a_log_(a_log) {}

  void add_gated_attention(const std::string& name, Tensors& to) const;
  void add_gated_delta(const std::string& name, Tensors& to) const;
  void add_latent_attention(const std::string& name, Tensors& to) const;

 private:
  int number(const char* key) const { return config_.at(key).get<int>(); }

  const Json& config_;
  const SynthResidual& residual_;
  std::uint64_t seed_;
  DType a_log_;
};

}  // namespace moeflux
