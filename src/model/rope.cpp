#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/portable_math.h"

namespace moeflux {

RopeSpec make_rope(double theta, int n_rot, bool interleaved) {
  RopeSpec rope{.n_rot = n_rot, .interleaved = interleaved, .inv_freq = {}, .magnitude = 1};
  for (int i = 0; i < n_rot / 2; ++i) {
    rope.inv_freq.push_back(static_cast<float>(portable::pow(theta, -2.0 * i / n_rot)));
  }
  return rope;
}

RopeSpec make_linear_rope(double theta, int n_rot, bool interleaved, double factor) {
  RopeSpec rope = make_rope(theta, n_rot, interleaved);
  for (float& f : rope.inv_freq) f = static_cast<float>(f / factor);
  return rope;
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * portable::log(factor) + 1.0;
}

RopeSpec make_yarn_rope(double theta, int n_rot, bool interleaved, const YarnScaling& yarn) {
  // The dimension whose wavelength makes `turns` turns over the original context.
  const auto dimension_of = [&](double turns) {
    return n_rot * portable::log(yarn.original_context / (turns * 2 * std::numbers::pi)) /
           (2 * portable::log(theta));
  };
  const double low = std::max(std::floor(dimension_of(yarn.beta_fast)), 0.0);
  double high = std::min(std::ceil(dimension_of(yarn.beta_slow)), n_rot - 1.0);
  if (low == high) high += 0.001;

  RopeSpec rope{.n_rot = n_rot, .interleaved = interleaved, .inv_freq = {}, .magnitude = 1};
  for (int i = 0; i < n_rot / 2; ++i) {
    const double plain = portable::pow(theta, -2.0 * i / n_rot);
    const double stretched = plain / yarn.factor;
    const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
    rope.inv_freq.push_back(static_cast<float>(plain * (1 - ramp) + stretched * ramp));
  }
  double magnitude = yarn_mscale(yarn.factor, 1);
  if (yarn.mscale.value_or(0) != 0 && yarn.mscale_all_dim.value_or(0) != 0) {
    magnitude =
        yarn_mscale(yarn.factor, *yarn.mscale) / yarn_mscale(yarn.factor, *yarn.mscale_all_dim);
  }
  rope.magnitude = static_cast<float>(yarn.attention_factor.value_or(magnitude));
  return rope;
}

}  // namespace moeflux
