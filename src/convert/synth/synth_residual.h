// The residual stream of a synthetic model as its weights expect it: how large its channels are at
// some depth, and matrices that read from it or write to it with outputs of a wanted size.
#pragma once

#include <cmath>
#include <functional>
#include <string>

#include "convert/synth/synth_tensor.h"

namespace moeflux {

using RowFunction = std::function<double(std::int64_t row)>;

// What a matrix that reads the residual stream is to put out.
struct SynthOutput {
  double std = 1;      // of each output, over tokens
  RowFunction gain{};  // factor on it by row; none: 1
  RowFunction bias{};  // mean of each output; none: 0
};

class SynthResidual {
 public:
  // `depth`: layers of the whole model. A model with fewer has the first of these layers.
  SynthResidual(int d_model, int depth)
      : d_model_(d_model), n_slow_(d_model >= 1024 ? 128 : 64), depth_(depth) {}

  int d_model() const { return d_model_; }
  int n_slow() const { return n_slow_; }
  int n_rest() const { return d_model_ - kConstantChannels - n_slow_; }
  // Norms of the part of a normalized vector that lies in these channels.
  double slow_norm() const { return std::sqrt(n_slow_ * slow_) / rms(); }
  double rest_norm() const { return std::sqrt(n_rest() * rest_) / rms(); }
  // Weights on the constant channels that add up to `bias`.
  double constant_for(double bias) const { return bias * rms() / kConstantChannels; }

  SynthMatrix reader(std::string module, std::int64_t rows, int bits, SynthOutput out) const;
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

  int d_model_, n_slow_, depth_;
  double slow_ = 0, rest_ = 1;  // mean squares of these channels
};

}  // namespace moeflux
