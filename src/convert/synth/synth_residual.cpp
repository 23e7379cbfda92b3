#include "convert/synth/synth_residual.h"

#include <utility>

namespace moeflux {

SynthMatrix SynthResidual::reader(std::string module, std::int64_t rows, int bits,
                                  SynthOutput out) const {
  const double norm = std::hypot(slow_norm(), rest_norm());
  return {.module = std::move(module),
          .rows = rows,
          .cols = d_model_,
          .bits = bits,
          .std = out.std / norm,
          .row_gain = std::move(out.gain),
          .constant = [bias = std::move(out.bias), one = constant_for(1)](
                          std::int64_t row) { return bias ? bias(row) * one : 0.0; },
          .slow_columns = n_slow_};
}

SynthMatrix SynthResidual::writer(std::string module, std::int64_t cols, double std,
                                  double slow_gain) const {
  const int first_rest = kConstantChannels + n_slow_;
  return {.module = std::move(module),
          .rows = d_model_,
          .cols = cols,
          .std = std / std::sqrt(static_cast<double>(cols)),
          .row_gain = [first_rest, slow_gain](std::int64_t row) {
            return row < kConstantChannels ? 0.0 : row < first_rest ? slow_gain : 1.0;
          }};
}

SynthMatrix SynthResidual::mixer_writer(std::string module, std::int64_t cols,
                                        double input_rms) const {
  const double std = std::sqrt(mixer_variance());
  return writer(std::move(module), cols, std / input_rms, std::sqrt(slow_variance()) / std);
}

SynthMatrix SynthResidual::ffn_writer(std::string module, std::int64_t cols, double input_rms,
                                      double share) const {
  return writer(std::move(module), cols, std::sqrt(ffn_variance() * share) / input_rms, 0);
}

void SynthResidual::add_mixer(double slowness) {
  rest_ += mixer_variance();
  slow_ += slow_variance() * slowness;
}

}  // namespace moeflux
