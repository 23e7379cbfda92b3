#include "convert/synth/synth_plan.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <numeric>

#include "base/error.h"
#include "convert/synth/synth_mixers.h"
#include "source/checkpoint_files.h"

namespace moeflux {
namespace {

constexpr double kRouterNoise = 1.28;  // standard deviation of an expert's logit over tokens
constexpr double kLogitStd = 3;
// Root mean square of silu(x) y for independent standard normal x and y, and of the clamped form.
constexpr double kSwigluRms = 0.596, kClampedSwigluRms = 0.92;

// How much the logarithm of an expert's frequency grows with its logit when the top `share` of all
// are chosen: the hazard rate of the normal noise at the threshold. Less of it is seen, because the
// choice is without replacement; by measurement, 0.83.
double log_frequency_per_logit(double share) {
  double low = -8, high = 8;  // the threshold: above it lies `share` of a normal distribution
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2.0)) / 2 > share ? low : high) = middle;
  }
  const double density = std::exp(-low * low / 2) / std::sqrt(2 * std::acos(-1.0));
  return 0.83 * density / share / kRouterNoise;
}

int number(const Json& config, const char* key) {
  return config.at(key).get<int>();
}

// The first of these keys that the config has.
int number(const Json& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (config.contains(key)) return number(config, key);
  }
  MOEFLUX_ASSERT(false);
  return 0;
}

class Planner {
 public:
  Planner(const SynthShape& shape, const SynthStatistics& statistics)
      : shape_(shape),
        blocks_(shape.blocks),
        text_(text_config(shape.config)),
        statistics_(statistics),
        is_latent_(text_.contains("kv_lora_rank")),
        d_model_(number(text_, "hidden_size")),
        residual_(d_model_, shape.depth, shape.blocks.dense_bits) {}

  SynthPlan plan() {
    const SynthResidual start = residual_;
    const int n_layers = number(text_, "num_hidden_layers"), n_vocab = number(text_, "vocab_size");
    const int n_dense = text_.value("first_k_dense_replace", 0);
    add(embedding(n_vocab));
    for (int i = 0; i < n_layers; ++i) {
      const std::string name = fmt::format("{}model.layers.{}.", blocks_.prefix, i);
      layer(name, i, is_linear(i), i >= n_dense);
    }
    add(norm(blocks_.prefix + "model.norm.weight", d_model_));
    add(residual_.reader(blocks_.prefix + "lm_head", n_vocab, {.std = kLogitStd}));
    if (shape_.mtp) {
      residual_ = start;
      mtp(n_layers);
    }
    finish();
    return std::move(plan_);
  }

 private:
  bool is_linear(int layer) const {
    const auto types = text_.find("layer_types");
    return types != text_.end() && (*types)[static_cast<std::size_t>(layer)] == "linear_attention";
  }

  void add(std::variant<SynthMatrix, SynthVector> tensor) {
    plan_.dense.push_back(std::move(tensor));
  }

  SynthVector norm(const std::string& name, std::int64_t size) const {
    return synth_norm(name, size, statistics_.seed);
  }

  SynthMatrix embedding(int n_vocab) const {
    return {.module = blocks_.prefix + "model.embed_tokens",
            .rows = n_vocab,
            .cols = d_model_,
            .bits = blocks_.dense_bits,
            .std = 1,
            .constant = [](std::int64_t) { return 1.0; },
            .slow_columns = residual_.n_slow(),
            .slow_gain = 0};
  }

  void layer(const std::string& name, int index, bool linear, bool moe) {
    add(norm(name + "input_layernorm.weight", d_model_));
    const SynthMixers mixers(shape_, text_, residual_, statistics_.seed);
    double slowness = 1;
    if (is_latent_) {
      mixers.add_latent_attention(name + "self_attn.", plan_.dense);
    } else if (linear) {
      mixers.add_gated_delta(name + "linear_attn.", plan_.dense);
    } else {
      mixers.add_attention(name + "self_attn.", plan_.dense);
      slowness = 0.25;  // it averages over everything, and little is left
    }
    residual_.add_mixer(slowness);
    add(norm(name + "post_attention_layernorm.weight", d_model_));
    if (moe) {
      mixture(name + blocks_.mlp, index);
    } else {
      feed_forward(name + blocks_.mlp, number(text_, "intermediate_size"), 1);
    }
    residual_.add_ffn();
  }

  // gate, up and down, whose output is a share of what a feed-forward may add.
  std::vector<SynthMatrix> swiglu(const std::string& name, int d_ff, double share) const {
    const double rms = blocks_.has_clamped_swiglu ? kClampedSwigluRms : kSwigluRms;
    return {residual_.reader(name + "gate_proj", d_ff, {}),
            residual_.reader(name + "up_proj", d_ff, {}),
            residual_.ffn_writer(name + "down_proj", d_ff, rms, share)};
  }

  void feed_forward(const std::string& name, int d_ff, double share) {
    for (SynthMatrix& matrix : swiglu(name, d_ff, share)) add(std::move(matrix));
  }

  // Half of the variance comes from the routed experts, whose weights add up to 1 or to
  // routed_scaling_factor, and half from the shared one, which may lie behind a gate of about 1/2.
  // Without a shared one all comes from the routed experts.
  void mixture(const std::string& name, int index) {
    const int n_experts = number(text_, {"n_routed_experts", "num_experts", "num_local_experts"});
    const int top_k = number(text_, "num_experts_per_tok");
    const int d_expert = number(text_, {"moe_intermediate_size", "intermediate_size"});
    add(router(name + blocks_.router, n_experts));
    if (blocks_.has_all_biases) add(synth_zeros(name + blocks_.router + ".bias", {n_experts}));
    const bool has_scores = !blocks_.correction_bias.empty();  // sigmoid, nearly alike
    if (has_scores) add(synth_zeros(name + blocks_.correction_bias, {n_experts}, DType::F32));
    const double scale = text_.value("routed_scaling_factor", 1.0);
    const double routed = (has_scores ? 1.05 : 1.44) * scale * scale / top_k;
    const double share = blocks_.shared.empty() ? 1 : 0.5;
    if (!blocks_.shared.empty()) shared_expert(name, d_expert);
    experts(name + blocks_.experts, index, n_experts, d_expert, share / routed);
  }

  void shared_expert(const std::string& name, int d_expert) {
    if (!blocks_.shared_is_gated) {
      feed_forward(name + blocks_.shared, d_expert * number(text_, "n_shared_experts"), 0.5);
      return;
    }
    feed_forward(name + blocks_.shared, number(text_, "shared_expert_intermediate_size"),
                 0.5 / 0.27);
    SynthMatrix gate = residual_.reader(name + "shared_expert_gate", 1, {.std = 0.5});
    gate.bits = shape_.router_bits;
    add(std::move(gate));
  }

  void experts(const std::string& name, int index, int n_experts, int d_expert, double share) {
    SynthBank bank{.name = name,
                   .layer = index,
                   .n_experts = n_experts,
                   .matrices = swiglu(name + ".", d_expert, share)};
    for (SynthMatrix& matrix : bank.matrices) {
      if (blocks_.has_all_biases)
        add(synth_zeros(matrix.module + ".bias", {n_experts, matrix.rows}));
      matrix.bits = 4;
      matrix.is_mxfp4 = blocks_.has_mxfp4_experts;
    }
    plan_.banks.push_back(std::move(bank));
  }

  // Logits that make frequencies fall with rank^-skew, in a random order and with a mean of 0.
  std::shared_ptr<const std::vector<double>> popularity(const std::string& module,
                                                        int n_experts) const {
    const double share = static_cast<double>(number(text_, "num_experts_per_tok")) / n_experts;
    const double slope = statistics_.skew / log_frequency_per_logit(std::min(share, 0.5));
    const RandomStream random(statistics_.seed, module + ".popularity");
    std::vector<int> order(static_cast<std::size_t>(n_experts));
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      const auto x = random.word(static_cast<std::uint64_t>(a));
      const auto y = random.word(static_cast<std::uint64_t>(b));
      return x != y ? x < y : a < b;
    });
    std::vector<double> logits(order.size());
    double sum = 0;
    for (std::size_t rank = 0; rank < order.size(); ++rank) {
      const double logit = -slope * std::log(static_cast<double>(rank + 1));
      logits[static_cast<std::size_t>(order[rank])] = logit;
      sum += logit;
    }
    for (double& logit : logits) logit -= sum / n_experts;
    return std::make_shared<const std::vector<double>>(std::move(logits));
  }

  SynthMatrix router(const std::string& module, int n_experts) const {
    const double slow_share = statistics_.skew > 0 ? statistics_.locality : 0;
    const double rest_std = kRouterNoise * std::sqrt(1 - slow_share) / residual_.rest_norm();
    const double slow_std = kRouterNoise * std::sqrt(slow_share) / residual_.slow_norm();
    SynthMatrix matrix = residual_.reader(
        module, n_experts, {.bias = [logits = popularity(module, n_experts)](std::int64_t row) {
          return (*logits)[static_cast<std::size_t>(row)];
        }});
    matrix.bits = shape_.router_bits;
    matrix.std = rest_std;
    matrix.slow_gain = slow_std / rest_std;
    return matrix;
  }

  // Its layer starts from a residual stream like that of the first layer.
  void mtp(int n_layers) {
    const std::string name =
        is_latent_ ? fmt::format("model.layers.{}.", n_layers) : blocks_.prefix + "mtp.";
    const auto part = [&](const char* qwen, const char* deepseek) {
      return name + (is_latent_ ? deepseek : qwen);
    };
    add(norm(part("pre_fc_norm_embedding.weight", "enorm.weight"), d_model_));
    add(norm(part("pre_fc_norm_hidden.weight", "hnorm.weight"), d_model_));
    add(SynthMatrix{.module = part("fc", "eh_proj"),
                    .rows = d_model_,
                    .cols = 2 * d_model_,
                    .std = 1 / std::sqrt(2.0 * d_model_),
                    .row_gain = [](std::int64_t row) { return row < kConstantChannels ? 0 : 1; },
                    .constant =
                        [](std::int64_t row) {
                          return row < kConstantChannels ? 1.0 / kConstantChannels : 0;
                        }});
    layer(is_latent_ ? name : name + "layers.0.", n_layers, /*linear=*/false, /*moe=*/true);
    add(norm(part("norm.weight", "shared_head.norm.weight"), d_model_));
  }

  // The sum of all bytes, and the part of the config that says how weights are quantized.
  void finish() {
    const bool is_mxfp4 = blocks_.has_mxfp4_experts;
    Json quantization = {{"group_size", is_mxfp4 ? kSynthMxGroup : kSynthGroup},
                         {"bits", 4},
                         {"mode", is_mxfp4 ? "mxfp4" : "affine"}};
    for (const auto& tensor : plan_.dense) {
      if (const auto* vector = std::get_if<SynthVector>(&tensor)) {
        plan_.bytes += plane_of(*vector).bytes;
        continue;
      }
      const auto& matrix = std::get<SynthMatrix>(tensor);
      MOEFLUX_ASSERT(matrix.bits == 16 || matrix.cols % kSynthGroup == 0);
      for (const SynthPlane& plane : planes_of(matrix)) plan_.bytes += plane.bytes;
      if (matrix.bits == 8) {
        quantization[matrix.module] = {{"group_size", kSynthGroup}, {"bits", 8}};
      }
    }
    for (const SynthBank& bank : plan_.banks) {
      for (const SynthMatrix& matrix : bank.matrices) {
        for (const SynthPlane& plane : planes_of(matrix)) {
          plan_.bytes += plane.bytes * static_cast<std::uint64_t>(bank.n_experts);
        }
      }
    }
    plan_.config = shape_.config;
    plan_.config["quantization"] = quantization;
    plan_.config["quantization_config"] = std::move(quantization);
  }

  const SynthShape& shape_;
  const SynthBlocks& blocks_;
  const Json& text_;
  const SynthStatistics& statistics_;
  bool is_latent_;
  int d_model_;
  SynthResidual residual_;
  SynthPlan plan_;
};

}  // namespace

SynthPlan plan_synthesis(const SynthShape& shape, const SynthStatistics& statistics) {
  return Planner(shape, statistics).plan();
}

}  // namespace moeflux
