#include "convert/synth/synth_mixers.h"

#include <cmath>
#include <utility>

namespace moeflux {

SynthMatrix SynthResidual::reader(std::string module, std::int64_t rows, SynthOutput out) const {
  const double norm = std::hypot(slow_norm(), rest_norm());
  return {.module = std::move(module),
          .rows = rows,
          .cols = d_model_,
          .bits = bits_,
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
          .bits = bits_,
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

namespace {

double mix(double from, double to, double share) {
  return from + (to - from) * share;
}

// i of n, from 0 to 1.
double share_of(std::int64_t i, std::int64_t n) {
  return n > 1 ? static_cast<double>(i) / static_cast<double>(n - 1) : 0.5;
}

}  // namespace

SynthVector synth_norm(const std::string& name, std::int64_t size, std::uint64_t seed) {
  return {.name = name,
          .dtype = DType::BF16,
          .shape = {size},
          .value = [random = RandomStream(seed, name)](std::int64_t i) {
            return mix(0.95, 1.05, random.uniform(static_cast<std::uint64_t>(i)));
          }};
}

SynthVector synth_zeros(const std::string& name, std::vector<std::int64_t> shape, DType dtype) {
  return {.name = name, .dtype = dtype, .shape = std::move(shape), .value = [](std::int64_t) {
            return 0.0;
          }};
}

int SynthMixers::n_rotated(int d_head) const {
  if (config_.contains("rotary_dim")) return number("rotary_dim");
  const Json& rope = config_.contains("rope_parameters") ? config_.at("rope_parameters") : config_;
  return static_cast<int>(d_head * rope.value("partial_rotary_factor", 1.0));
}

// Queries and keys have the same constant part in up to 64 dimensions that rotate, the fastest, so
// that scores fall with distance; the rest of them is random.
void SynthMixers::add_attention(const std::string& name, Tensors& to) const {
  const int d = number("head_dim"), n_heads = number("num_attention_heads");
  const int n_kv = number("num_key_value_heads"), rotary = n_rotated(d);
  const RandomStream pattern(seed_, name + "pattern");
  const auto bias_of = [pattern, rotary](std::int64_t dim) {
    const bool is_fast = dim < rotary && dim % (rotary / 2) < 32;
    return is_fast ? 1.5 * pattern.sign(static_cast<std::uint64_t>(dim)) : 0.0;
  };
  const std::int64_t q_dim = std::int64_t{n_heads} * d, kv_dim = std::int64_t{n_kv} * d;
  const int per_head =
      blocks_.has_output_gate ? 2 * d : d;  // d rows are the query, others the gate
  to.push_back(residual_.reader(name + "q_proj", std::int64_t{n_heads} * per_head,
                                {.bias = [bias_of, d, per_head](std::int64_t row) {
                                  const std::int64_t dim = row % per_head;
                                  return dim < d ? bias_of(dim) : 0.0;
                                }}));
  to.push_back(residual_.reader(name + "k_proj", kv_dim, {.bias = [bias_of, d](std::int64_t row) {
                                  return bias_of(row % d);
                                }}));
  to.push_back(residual_.reader(name + "v_proj", kv_dim, {}));
  if (blocks_.has_bias) {
    to.push_back(synth_zeros(name + "q_proj.bias", {std::int64_t{n_heads} * per_head}));
    to.push_back(synth_zeros(name + "k_proj.bias", {kv_dim}));
    to.push_back(synth_zeros(name + "v_proj.bias", {kv_dim}));
  }
  if (blocks_.has_sinks) to.push_back(synth_zeros(name + "sinks", {n_heads}));
  if (blocks_.qk_norm != QkNorm::None) {
    const bool is_whole = blocks_.qk_norm == QkNorm::WholeRow;
    to.push_back(synth_norm(name + "q_norm.weight", is_whole ? q_dim : d, seed_));
    to.push_back(synth_norm(name + "k_norm.weight", is_whole ? kv_dim : d, seed_));
  }
  // Values average out over the context; a few tokens are taken as typical.
  constexpr double kAverage = 0.4;
  const double gate = blocks_.has_output_gate ? 0.54 : 1;
  to.push_back(residual_.mixer_writer(name + "o_proj", q_dim, gate * kAverage));
  if (blocks_.has_all_biases)
    to.push_back(synth_zeros(name + "o_proj.bias", {residual_.d_model()}));
}

// With a key that hardly changes, the delta rule is a moving average: S^T k moves by the share beta
// towards each new value.
void SynthMixers::add_gated_delta(const std::string& name, Tensors& to) const {
  const int d_key = number("linear_key_head_dim"), d_value = number("linear_value_head_dim");
  const int key_dim = number("linear_num_key_heads") * d_key;
  const int n_values = number("linear_num_value_heads"), width = number("linear_conv_kernel_dim");
  const std::int64_t value_dim = std::int64_t{n_values} * d_value;
  const std::int64_t conv_dim = 2 * key_dim + value_dim;
  const RandomStream random(seed_, name + "pattern");

  // The silu behind the convolution would give values a mean; this bias takes it away.
  constexpr double kValueBias = -0.145;
  const auto qkv_gain = [key_dim](std::int64_t row) { return row < 2 * key_dim ? 0.5 : 1.0; };
  const auto qkv_bias = [random, key_dim](std::int64_t row) {
    if (row >= 2 * key_dim) return kValueBias;
    return 1.5 * random.sign(static_cast<std::uint64_t>(row % key_dim));
  };
  // beta from 0.03 to 0.38.
  const auto b_bias = [n_values](std::int64_t row) {
    return mix(-3.5, -0.5, share_of(row, n_values));
  };
  if (blocks_.has_grouped_delta) {
    // Row `row` of all q, k, v and z rows, which lie together for each key head.
    const int n_keys = number("linear_num_key_heads"), values = n_values / n_keys * d_value;
    const auto ungrouped = [=](std::int64_t row) -> std::int64_t {
      const std::int64_t head = row / (2 * d_key + 2 * values), at = row % (2 * d_key + 2 * values);
      if (at < d_key) return head * d_key + at;
      if (at < 2 * d_key) return key_dim + head * d_key + at - d_key;
      if (at < 2 * d_key + values) return 2 * key_dim + head * values + at - 2 * d_key;
      return conv_dim + head * values + at - 2 * d_key - values;
    };
    to.push_back(residual_.reader(name + "in_proj_qkvz", conv_dim + value_dim,
                                  {.gain =
                                       [=](std::int64_t row) {
                                         const std::int64_t at = ungrouped(row);
                                         return at < conv_dim ? qkv_gain(at) : 0.5;
                                       },
                                   .bias =
                                       [=](std::int64_t row) {
                                         const std::int64_t at = ungrouped(row);
                                         return at < conv_dim ? qkv_bias(at) : 1.0;
                                       }}));
    const int per_key = n_values / n_keys;  // of b, and then as many of a
    to.push_back(residual_.reader(name + "in_proj_ba", std::int64_t{2} * n_values,
                                  {.std = 0.3, .bias = [=](std::int64_t row) {
                                     const std::int64_t head = row / (2 * per_key),
                                                        at = row % (2 * per_key);
                                     return at < per_key ? b_bias(head * per_key + at) : 0.0;
                                   }}));
  } else {
    to.push_back(
        residual_.reader(name + "in_proj_qkv", conv_dim, {.gain = qkv_gain, .bias = qkv_bias}));
    to.push_back(residual_.reader(name + "in_proj_z", value_dim,
                                  {.std = 0.5, .bias = [](std::int64_t) { return 1.0; }}));
    to.push_back(residual_.reader(name + "in_proj_b", n_values, {.std = 0.3, .bias = b_bias}));
    to.push_back(residual_.reader(name + "in_proj_a", n_values, {.std = 0.3}));
  }
  // The current token, the last tap, counts most. The taps add up to 1.
  to.push_back(SynthVector{.name = name + "conv1d.weight",
                           .dtype = DType::BF16,
                           .shape = {conv_dim, width, 1},
                           .value = [width](std::int64_t i) {
                             return 2.0 * static_cast<double>(i % width + 1) /
                                    (width * (width + 1.0));
                           }});
  to.push_back(SynthVector{.name = name + "A_log",
                           .dtype = a_log_,
                           .shape = {n_values},
                           .value = [random, key_dim](std::int64_t i) {
                             return std::log(mix(
                                 1, 4, random.uniform(static_cast<std::uint64_t>(key_dim + i))));
                           }});
  // softplus of it is the time step: 0.003 to 0.05.
  to.push_back(SynthVector{.name = name + "dt_bias",
                           .dtype = DType::BF16,
                           .shape = {n_values},
                           .value = [random, key_dim, n_values](std::int64_t i) {
                             const double u =
                                 random.uniform(static_cast<std::uint64_t>(key_dim + n_values + i));
                             return std::log(std::expm1(0.003 * std::pow(0.05 / 0.003, u)));
                           }});
  to.push_back(synth_norm(name + "norm.weight", d_value, seed_));
  constexpr double kGatedRms = 0.87;  // of silu(z), z as above
  to.push_back(residual_.mixer_writer(name + "out_proj", value_dim, kGatedRms));
}

// As in gated attention, scores fall with distance, here by a strength that differs between heads.
// The constant part of queries passes their latent through its first channels.
void SynthMixers::add_latent_attention(const std::string& name, Tensors& to) const {
  const int n_heads = number("num_attention_heads"), q_rank = number("q_lora_rank");
  const int kv_rank = number("kv_lora_rank"), d_nope = number("qk_nope_head_dim");
  const int d_rope = number("qk_rope_head_dim"), d_value = number("v_head_dim");
  const int d_query = d_nope + d_rope;
  const RandomStream pattern(seed_, name + "pattern");
  const auto sign = [pattern](std::int64_t dim) {
    return pattern.sign(static_cast<std::uint64_t>(dim));
  };
  to.push_back(residual_.reader(
      name + "q_a_proj", q_rank,
      {.gain = [](std::int64_t row) { return row < kConstantChannels ? 0.0 : 1.0; },
       .bias = [](std::int64_t row) { return row < kConstantChannels ? 1.0 : 0.0; }}));
  to.push_back(synth_norm(name + "q_a_layernorm.weight", q_rank, seed_));
  to.push_back(SynthMatrix{.module = name + "q_b_proj",
                           .rows = std::int64_t{n_heads} * d_query,
                           .cols = q_rank,
                           .std = 0.5 / std::sqrt(static_cast<double>(q_rank)),
                           .constant = [sign, d_query, d_nope, n_heads](std::int64_t row) {
                             const std::int64_t dim = row % d_query - d_nope;
                             if (dim < 0) return 0.0;
                             return sign(dim) * mix(0.4, 1.8, share_of(row / d_query, n_heads)) /
                                    kConstantChannels;
                           }});
  to.push_back(residual_.reader(
      name + "kv_a_proj_with_mqa", kv_rank + d_rope,
      {.gain = [kv_rank](std::int64_t row) { return row < kv_rank ? 1.0 : 0.2; },
       .bias = [sign,
                kv_rank](std::int64_t row) { return row < kv_rank ? 0.0 : sign(row - kv_rank); }}));
  to.push_back(synth_norm(name + "kv_a_layernorm.weight", kv_rank, seed_));
  to.push_back(SynthMatrix{.module = name + "kv_b_proj",
                           .rows = std::int64_t{n_heads} * (d_nope + d_value),
                           .cols = kv_rank,
                           .std = 1 / std::sqrt(static_cast<double>(kv_rank)),
                           .row_gain = [d_nope, d_value](std::int64_t row) {
                             return row % (d_nope + d_value) < d_nope ? 0.5 : 1.0;
                           }});
  constexpr double kAverage = 0.4;  // what is left of values
  to.push_back(residual_.mixer_writer(name + "o_proj", std::int64_t{n_heads} * d_value, kAverage));
}

}  // namespace moeflux
