// The RoPE part of a config. Exporters write it as `rope_parameters`, as the older `rope_scaling`,
// or flat beside the other fields; a field in several of these places must have one value. A flat
// default of the family may stand beside another value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/rope.h"

namespace moeflux {

class RopeFields {
 public:
  // Throws Unsupported for a type of RoPE, or a key of its object, that is not implemented:
  // ignored, it would be a silently wrong model. `config` must outlive this. `default_theta`: of a
  // family whose configs may leave it out.
  explicit RopeFields(const JsonFields& config, std::optional<double> default_theta = {});

  std::optional<double> number(std::string_view key) const;
  bool is_proportional() const { return type_ == "proportional"; }
  RopeSpec make(int n_rot, bool interleaved) const;
  // Of the leading `partial_rotary_factor` of a head; "proportional": of the pairs of the whole
  // head.
  RopeSpec make_partial(int d_head, double default_share, bool interleaved = false) const;
  // Of a whole head. Throws Unsupported for a `partial_rotary_factor` other than 1.
  RopeSpec make_whole(int d_head, bool interleaved = false) const;
  void refuse_partial() const;

  // What the attention of DeepSeek multiplies its softmax scale by: the squared magnitude that
  // `mscale_all_dim` gives any scaled RoPE.
  double softmax_factor() const;

 private:
  const Json* find(std::string_view key) const;
  const Json* find(std::string_view key, const Json* flat) const;
  std::optional<double> number_of(std::string_view key, const Json* value) const;
  RopeSpec make_divided(int n_rot, bool interleaved) const;
  double rotary_share(double default_share) const;
  std::string read_type() const;
  void check_keys() const;
  double required(std::string_view key) const;
  double theta() const;
  double factor() const;
  double original_context() const;
  YarnScaling yarn() const;
  Llama3Scaling llama3() const;

  const JsonFields& config_;
  std::optional<double> default_theta_;
  std::vector<JsonFields> objects_;  // rope_parameters and rope_scaling, where present
  std::string type_;                 // "default" when nothing says otherwise
};

}  // namespace moeflux
