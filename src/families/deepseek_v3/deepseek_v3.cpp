#include "families/deepseek_v3/deepseek_v3.h"

#include <array>
#include <cmath>

#include "families/common.h"
#include "families/config_keys.h"
#include "families/index_reader.h"
#include "families/rope_fields.h"

namespace moeflux {
namespace {

// ---- config
// -------------------------------------------------------------------------------------------------

MlaSpec read_mla(const JsonFields& text) {
  const RopeFields rope(text);
  MlaSpec mla{
      .n_heads = size_field(text, "num_attention_heads"),
      .q_rank = static_cast<int>(text.integer_or("q_lora_rank", 0, 1, kMaxSize)),
      .kv_rank = size_field(text, "kv_lora_rank"),
      .d_nope = size_field(text, "qk_nope_head_dim"),
      .d_rope = size_field(text, "qk_rope_head_dim"),
      .d_value = size_field(text, "v_head_dim"),
      .rope =
          rope.make(size_field(text, "qk_rope_head_dim"), text.boolean_or("rope_interleave", true)),
      .scale = 0,
      .latent_norm_eps = 1e-6f,  // fixed in the reference, whatever rms_norm_eps is
  };
  const int d_qk = mla.d_query();
  require_integer(text, "num_key_value_heads", {mla.n_heads});
  require_integer(text, "qk_head_dim", {d_qk});
  require_integer(text, "head_dim", {mla.d_rope, d_qk});  // exporters differ in what they mean
  rope.refuse_partial();
  mla.scale = static_cast<float>(rope.softmax_factor() / std::sqrt(static_cast<double>(d_qk)));
  return mla;
}

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 10> kKeysRead{
    "num_attention_heads", "num_key_value_heads",  "head_dim",   "qk_head_dim",
    "qk_nope_head_dim",    "qk_rope_head_dim",     "v_head_dim", "kv_lora_rank",
    "rope_interleave",     "routed_scaling_factor"};

ModelConfig read_config(const ModelSource& source) {
  const JsonFields text = text_config(source);
  require_one_of(text, "hidden_act", {"silu"});
  require_one_of(text, "scoring_func", {"sigmoid"});
  require_one_of(text, "topk_method", {"noaux_tc"});
  refuse_unread_keys(source, kKeysRead);

  ModelConfig config = read_sizes(text, kDeepseekV3.name);
  const int n_layers = read_layer_count(text);
  const auto n_dense = text.integer_or("first_k_dense_replace", 0, 0, kMaxSize);
  const auto moe_every = text.integer_or("moe_layer_freq", 1, 1, 4096);
  const MlaSpec mla = read_mla(text);
  const MoeSpec moe = read_grouped_moe(text, size_field(text, "n_routed_experts"), /*n_shared=*/0);
  for (int i = 0; i < n_layers; ++i) {
    const bool is_moe = i >= n_dense && i % moe_every == 0;
    config.layers.push_back(
        {mla, is_moe ? FfnSpec(moe)
                     : FfnSpec(DenseFfnSpec{.d_ff = size_field(text, "intermediate_size")})});
  }
  if (has_mtp_layer(source, n_layers)) config.mtp = LayerSpec{mla, moe};
  return config;
}

// ---- tensors
// ------------------------------------------------------------------------------------------------

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names;
  names.trunk = trunk_prefix(source);
  names.shared = "shared_experts.";
  names.mtp = mtp_layer_names(source, config.n_layers());
  return IndexReader(source, config, names).read(head_is_tied(source));
}

constexpr std::array<std::string_view, 3> kModelTypes{"deepseek_v3", "kimi_k2", "kimi_k25"};
// DeepSeek's own end of sentence (with its full-width bars), and the turn end of chats in the
// ChatML manner.
constexpr std::array<std::string_view, 3> kEndTokens{
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
    "<|im_end|>", "[EOS]"};

}  // namespace

constexpr Family kDeepseekV3{
    .name = "deepseek_v3",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
