// What the mixers of a synthetic model read and write.
//
// SynthResidual is the residual stream as the weights expect it. SynthMixers makes the tensors of
// the mixers: their output is mostly an average over the last few tokens, over more of them in some
// heads than in others, which makes the slow channels slow (synth_plan.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "convert/synth/synth_shape.h"
#include "convert/synth/synth_tensor.h"

namespace moeflux {

using RowFunction = std::function<double(std::int64_t row)>;

// What a matrix that reads the residual stream is to put out.
struct SynthOutput {
  double std = 1;      // of each output, over tokens
  RowFunction gain{};  // factor on it by row; none: 1
  RowFunction bias{};  // mean of each output; none: 0
};

// How large the channels are at some depth, and matrices that read from the residual stream or
// write to it with outputs of a wanted size.
class SynthResidual {
 public:
  // `depth`: layers of the whole model. A model with fewer has the first of these layers.
  // `bits`: of dense matrices.
  SynthResidual(int d_model, int depth, int bits)
      : d_model_(d_model), n_slow_(d_model >= 1024 ? 128 : 64), depth_(depth), bits_(bits) {}

  int d_model() const { return d_model_; }
  int n_slow() const { return n_slow_; }
  int n_rest() const { return d_model_ - kConstantChannels - n_slow_; }
  // Norms of the part of a normalized vector that lies in these channels.
  double slow_norm() const { return std::sqrt(n_slow_ * slow_) / rms(); }
  double rest_norm() const { return std::sqrt(n_rest() * rest_) / rms(); }
  // Weights on the constant channels that add up to `bias`.
  double constant_for(double bias) const { return bias * rms() / kConstantChannels; }

  SynthMatrix reader(std::string module, std::int64_t rows, SynthOutput out) const;
  // Of a mixer or a feed-forward, from inputs of this size. Both know the share they may add.
  SynthMatrix mixer_writer(std::string module, std::int64_t cols, double input_rms) const;
  SynthMatrix ffn_writer(std::string module, std::int64_t cols, double input_rms,
                         double share) const;

  // After such a sublayer. `slowness`: the share of a mixer's output that varies slowly.
  void add_mixer(double slowness);
  void add_ffn() { rest_ += ffn_variance(); }

 private:
  // Together the sublayers add twice the variance of the embeddings.
  double mixer_variance() const { return 0.4 / depth_; }
  double ffn_variance() const { return 1.6 / depth_; }
  double slow_variance() const { return 1.0 / depth_; }
  double rms() const {
    return std::sqrt((kConstantChannels + n_slow_ * slow_ + n_rest() * rest_) / d_model_);
  }
  SynthMatrix writer(std::string module, std::int64_t cols, double std, double slow_gain) const;

  int d_model_, n_slow_, depth_, bits_;
  double slow_ = 0, rest_ = 1;  // mean squares of these channels
};

// About 1, as trained ones are; MLX stores them with the +1 of the Qwen family included.
SynthVector synth_norm(const std::string& name, std::int64_t size, std::uint64_t seed);
// A bias that does nothing.
SynthVector synth_zeros(const std::string& name, std::vector<std::int64_t> shape,
                        DType dtype = DType::BF16);

class SynthMixers {
 public:
  using Tensors = std::vector<std::variant<SynthMatrix, SynthVector>>;

  // `shape`, its text config and `residual` (at the mixer's input) must outlive this, but not the
  // tensors.
  SynthMixers(const SynthShape& shape, const Json& config, const SynthResidual& residual,
              std::uint64_t seed)
      : blocks_(shape.blocks),
        config_(config),
        residual_(residual),
        seed_(seed),
        a_log_(shape.a_log) {}

  void add_attention(const std::string& name, Tensors& to) const;
  void add_gated_delta(const std::string& name, Tensors& to) const;
  void add_latent_attention(const std::string& name, Tensors& to) const;

 private:
  int number(const char* key) const { return config_.at(key).get<int>(); }
  int n_rotated(int d_head) const;

  const SynthBlocks& blocks_;
  const Json& config_;
  const SynthResidual& residual_;
  std::uint64_t seed_;
  DType a_log_;
};

}  // namespace moeflux
