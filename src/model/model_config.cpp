#include "model/model_config.h"

#include <cmath>

#include "base/error.h"

namespace moeflux {
namespace {

// Far above every released model, far below what could overflow an int product with another size.
constexpr int kMaxSize = 1 << 24;
constexpr int kMaxContext = 1 << 28;
constexpr int kMaxLayers = 4096;
constexpr int kMaxExperts = 1 << 16;

class Checker {
 public:
  Checker(const std::string& origin, std::string where)
      : origin_(origin), where_(std::move(where)) {}

  void size(const char* what, std::int64_t value, std::int64_t max = kMaxSize) const {
    if (value < 1 || value > max) {
      fail(Errc::BadInput, "{}: {}{} is {}, outside of 1 to {}", origin_, where_, what, value, max);
    }
  }
  void that(bool ok, const std::string& message) const {
    if (!ok) fail(Errc::BadInput, "{}: {}{}", origin_, where_, message);
  }

  void rope(const RopeSpec& rope, int d_head, int least) const {
    that(rope.n_rot >= least && rope.n_rot % 2 == 0 && rope.n_rot <= d_head,
         fmt::format("{} rotary dimensions do not fit a head of {}", rope.n_rot, d_head));
    that(rope.inv_freq.size() == static_cast<std::size_t>(rope.n_rot / 2),
         fmt::format("{} rotary dimensions, but {} frequencies", rope.n_rot, rope.inv_freq.size()));
    that(std::isfinite(rope.magnitude), fmt::format("the magnitude of RoPE is {}", rope.magnitude));
  }
  void activation(const FfnActivation& a) const {
    if (a.kind != FfnActivation::Kind::ClampedSwiglu) return;
    that(std::isfinite(a.alpha) && a.alpha > 0,
         fmt::format("the alpha of the clamped SwiGLU is {}", a.alpha));
    that(std::isfinite(a.limit) && a.limit > 0,
         fmt::format("the limit of the clamped SwiGLU is {}", a.limit));
  }

  void operator()(const AttentionSpec& s) const {
    size("attention heads", s.n_heads);
    size("key-value heads", s.n_kv_heads);
    size("head size", s.d_head);
    that(
        s.n_heads % s.n_kv_heads == 0,
        fmt::format("{} attention heads cannot share {} key-value heads", s.n_heads, s.n_kv_heads));
    size("width of the queries", std::int64_t{s.n_heads} * s.query_head());
    that(!s.values_are_keys || s.has_value_norm, "values that are keys need a norm");
    if (s.window != 0) size("attention window", s.window, kMaxContext);
    that(std::isfinite(s.qkv_limit) && s.qkv_limit >= 0,
         fmt::format("the limit of queries, keys and values is {}", s.qkv_limit));
    that(s.qkv_limit == 0 || !s.has_output_gate, "a limit of queries, and a gate among them");
    rope(s.rope, s.d_head, /*least=*/0);
    that(std::isfinite(s.scale) && s.scale > 0,
         fmt::format("the scale of the attention scores is {}", s.scale));
  }
  void operator()(const GatedDeltaSpec& s) const {
    size("linear key heads", s.n_key_heads);
    size("linear value heads", s.n_value_heads);
    size("linear key head size", s.d_key);
    size("linear value head size", s.d_value);
    that(s.n_value_heads % s.n_key_heads == 0,
         fmt::format("{} linear value heads cannot share {} key heads", s.n_value_heads,
                     s.n_key_heads));
    size("convolution width", s.conv_width, 64);
    that(s.conv_width >= 2, "a convolution of width 1 is not a convolution");
    size("convolution channels",
         std::int64_t{2} * s.n_key_heads * s.d_key + std::int64_t{s.n_value_heads} * s.d_value);
  }
  void operator()(const MlaSpec& s) const {
    size("attention heads", s.n_heads);
    if (s.q_rank != 0) size("q_lora_rank", s.q_rank);
    size("kv_lora_rank", s.kv_rank);
    size("qk_nope_head_dim", s.d_nope);
    size("qk_rope_head_dim", s.d_rope);
    size("v_head_dim", s.d_value);
    size("width of the queries", std::int64_t{s.n_heads} * (s.d_nope + s.d_rope));
    size("width of the values", std::int64_t{s.n_heads} * (s.d_nope + s.d_value));
    size("width of the latents", std::int64_t{s.n_heads} * s.kv_rank);
    rope(s.rope, s.d_rope, /*least=*/2);
  }
  void operator()(const DenseFfnSpec& s) const {
    size("feed-forward size", s.d_ff);
    activation(s.activation);
  }
  void operator()(const MoeSpec& s) const {
    size("experts", s.n_experts, kMaxExperts);
    size("experts per token", s.top_k, kMaxExperts);
    size("expert size", s.d_expert);
    that(s.top_k <= s.n_experts,
         fmt::format("{} experts per token of only {} experts", s.top_k, s.n_experts));
    const RouterSpec& r = s.router;
    size("expert groups", r.n_groups, s.n_experts);
    size("groups kept", r.top_groups, r.n_groups);
    that(s.n_experts % r.n_groups == 0,
         fmt::format("{} experts do not divide into {} groups", s.n_experts, r.n_groups));
    that(r.n_groups == 1 || s.n_experts / r.n_groups >= 2,
         "a group of experts needs two members to be scored");
    that(s.top_k <= s.n_experts / r.n_groups * r.top_groups,
         fmt::format("{} experts per token, but {} of {} groups hold only {}", s.top_k,
                     r.top_groups, r.n_groups, s.n_experts / r.n_groups * r.top_groups));
    that(std::isfinite(r.scale), fmt::format("the scaling factor of the experts is {}", r.scale));
    that(!r.scores_chosen || r.n_groups == 1, "groups of experts need the scores of all experts");
    that(!r.scores_chosen || !r.has_correction_bias,
         "a correction of scores needs the scores of all experts");
    if (s.d_shared != 0) size("shared expert size", s.d_shared);
    that(!s.shared_is_gated || s.d_shared != 0, "a gate, but no shared expert");
    that(!s.has_part_norms || (s.d_shared != 0 && !s.shared_is_gated),
         "norms of the parts need a shared expert without a gate");
    activation(s.activation);
  }

 private:
  const std::string& origin_;
  std::string where_;
};

}  // namespace

void validate(const ModelConfig& config, const std::string& origin) {
  const Checker top(origin, "");
  top.size("hidden size", config.d_model);
  top.size("vocabulary", config.n_vocab);
  top.size("context length", config.context_length, kMaxContext);
  top.size("number of layers", config.n_layers(), kMaxLayers);
  top.that(config.norm_eps > 0 && config.norm_eps < 1, "rms_norm_eps must lie between 0 and 1");
  top.that(std::isfinite(config.embed_scale),
           fmt::format("the scale of the embeddings is {}", config.embed_scale));
  top.that(std::isfinite(config.logit_cap) && config.logit_cap >= 0,
           fmt::format("the cap of the logits is {}", config.logit_cap));
  const auto check_layer = [&](const LayerSpec& layer, std::string where) {
    const Checker checker(origin, std::move(where));
    std::visit(checker, layer.mixer);
    std::visit(checker, layer.ffn);
  };
  for (int i = 0; i < config.n_layers(); ++i)
    check_layer(config.layers[static_cast<std::size_t>(i)], fmt::format("layer {}: ", i));
  if (config.mtp) check_layer(*config.mtp, "mtp layer: ");
}

}  // namespace moeflux
