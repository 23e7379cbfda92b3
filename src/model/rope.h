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
  bool truncate = true;  // the ramp begins and ends at whole dimensions
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;
  std::optional<double> attention_factor;  // given outright instead of derived
};

struct Llama3Scaling {
  double factor = 1;
  double low_freq_factor = 1;   // turns over the original context below which a dimension stretches
  double high_freq_factor = 4;  // and above which it stays
  double original_context = 0;
};

RopeSpec make_rope(double theta, int n_rot, bool interleaved);
RopeSpec make_linear_rope(double theta, int n_rot, bool interleaved, double factor);
// Over the whole head, of which only the first `share` of the frequencies is not zero.
RopeSpec make_proportional_rope(double theta, int d_head, double share, double factor);
RopeSpec make_yarn_rope(double theta, int n_rot, bool interleaved, const YarnScaling& yarn);
RopeSpec make_llama3_rope(double theta, int n_rot, bool interleaved, const Llama3Scaling& llama3);

// YaRN's attention magnitude for a context stretched by `factor`: 0.1 * mscale * ln(factor) + 1.
double yarn_mscale(double factor, double mscale);

}  // namespace moeflux
