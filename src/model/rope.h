// Rotary position embedding as data: which dimensions turn, in which pairs, how fast.
#pragma once

#include <optional>
#include <vector>

namespace moeflux {

struct RopeSpec {
  int n_rot = 0;             // leading dimensions of a head that are rotated; the rest pass through
  bool interleaved = false;  // pairs (2i, 2i+1) instead of (i, i + n_rot/2)
  std::vector<float> inv_freq;  // [n_rot / 2]: radians per position
  float magnitude = 1;          // multiplies cos and sin
};

struct YarnScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  double original_context = 0;
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;
  std::optional<double> attention_factor;  // given outright instead of derived
};

RopeSpec make_rope(double theta, int n_rot, bool interleaved);
RopeSpec make_linear_rope(double theta, int n_rot, bool interleaved, double factor);
RopeSpec make_yarn_rope(double theta, int n_rot, bool interleaved, const YarnScaling& yarn);

// YaRN's attention magnitude for a context stretched by `factor`: 0.1 * mscale * ln(factor) + 1.
double yarn_mscale(double factor, double mscale);

}  // namespace moeflux
