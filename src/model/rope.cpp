#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/portable_math.h"

namespace moeflux {

namespace {

// Of an odd number of dimensions the last is rotated with the one behind it.
RopeSpec empty_rope(int n_rot, bool interleaved) {
  return {.n_rot = n_rot + n_rot % 2, .interleaved = interleaved, .inv_freq = {}, .magnitude = 1};
}

double plain_frequency(double theta, int i, int n_rot) {
  return portable::pow(theta, -2.0 * i / n_rot);
}

// Between `frequency` (share 0) and a `factor`-th of it (share 1).
float stretched_frequency(double frequency, double factor, double share) {
  return static_cast<float>(frequency * (1 - share) + frequency / factor * share);
}

}  // namespace

RopeSpec make_rope(double theta, int n_rot, bool interleaved) {
  RopeSpec rope = empty_rope(n_rot, interleaved);
  for (int i = 0; i < rope.n_rot / 2; ++i) {
    rope.inv_freq.push_back(static_cast<float>(plain_frequency(theta, i, n_rot)));
  }
  return rope;
}

RopeSpec make_linear_rope(double theta, int n_rot, bool interleaved, double factor) {
  RopeSpec rope = make_rope(theta, n_rot, interleaved);
  for (float& f : rope.inv_freq) f = static_cast<float>(f / factor);
  return rope;
}

RopeSpec make_proportional_rope(double theta, int d_head, double share, double factor) {
  RopeSpec rope = make_linear_rope(theta, d_head, /*interleaved=*/false, factor);
  const auto n_turning = static_cast<std::size_t>(share * d_head / 2);
  for (std::size_t i = n_turning; i < rope.inv_freq.size(); ++i) rope.inv_freq[i] = 0;
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
  double low = dimension_of(yarn.beta_fast);
  double high = dimension_of(yarn.beta_slow);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, n_rot - 1.0);
  if (low == high) high += 0.001;

  RopeSpec rope = empty_rope(n_rot, interleaved);
  for (int i = 0; i < n_rot / 2; ++i) {
    const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
    rope.inv_freq.push_back(
        stretched_frequency(plain_frequency(theta, i, n_rot), yarn.factor, ramp));
  }
  double magnitude = yarn_mscale(yarn.factor, 1);
  if (yarn.mscale.value_or(0) != 0 && yarn.mscale_all_dim.value_or(0) != 0) {
    magnitude =
        yarn_mscale(yarn.factor, *yarn.mscale) / yarn_mscale(yarn.factor, *yarn.mscale_all_dim);
  }
  rope.magnitude = static_cast<float>(yarn.attention_factor.value_or(magnitude));
  return rope;
}

RopeSpec make_llama3_rope(double theta, int n_rot, bool interleaved, const Llama3Scaling& llama3) {
  RopeSpec rope = empty_rope(n_rot, interleaved);
  for (int i = 0; i < rope.n_rot / 2; ++i) {
    const double plain = plain_frequency(theta, i, n_rot);
    const double turns = llama3.original_context * plain / (2 * std::numbers::pi);
    const double kept = std::clamp(
        (turns - llama3.low_freq_factor) / (llama3.high_freq_factor - llama3.low_freq_factor), 0.0,
        1.0);
    rope.inv_freq.push_back(stretched_frequency(plain, llama3.factor, 1 - kept));
  }
  return rope;
}

}  // namespace moeflux
