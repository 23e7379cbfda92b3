#include "families/qwen3_5_moe/qwen3_5_moe.h"

#include <array>

#include "families/common.h"
#include "families/config_keys.h"
#include "families/qwen_hybrid.h"

namespace moeflux {
namespace {

FfnSpec read_ffn(const JsonFields& text) {
  if (!text.has("num_experts")) return DenseFfnSpec{.d_ff = size_field(text, "intermediate_size")};
  return MoeSpec{
      .n_experts = size_field(text, "num_experts"),
      .top_k = size_field(text, "num_experts_per_tok"),
      .d_expert = size_field(text, "moe_intermediate_size"),
      // Softmax over all experts, the chosen ones renormalised, whatever norm_topk_prob says: this
      // family always does.
      .router = {},
      .d_shared = size_field(text, "shared_expert_intermediate_size"),
      .shared_is_gated = true,
  };
}

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 12> kKeysRead{
    "num_attention_heads",     "num_key_value_heads", "head_dim",
    "full_attention_interval", "attn_output_gate",    "layer_scale",
    "linear_num_key_heads",    "linear_key_head_dim", "linear_num_value_heads",
    "linear_value_head_dim",   "norms_include_one",   "linear_value_heads_alternate"};

ModelConfig read_config(const ModelSource& source) {
  const JsonFields text = text_config(source);
  require_one_of(text, "hidden_act", {"silu"});
  require_boolean(text, "attn_output_gate", true);
  require_boolean(text, "layer_scale", false);
  require_boolean(text, "mtp_use_dedicated_embeddings", false);
  refuse_unread_keys(source, kKeysRead);

  ModelConfig config = read_sizes(text, kQwen35Moe.name);
  const int n_layers = read_layer_count(text);
  const FfnSpec ffn = read_ffn(text);
  const AttentionSpec attention = qwen_hybrid::read_attention(text);
  const std::vector<bool> is_attention = qwen_hybrid::read_attention_layers(text, n_layers);
  config.layers.assign(is_attention.size(), {attention, ffn});
  for (std::size_t i = 0; i < is_attention.size(); ++i) {
    if (!is_attention[i]) config.layers[i].mixer = qwen_hybrid::read_delta(text);
  }
  if (!qwen_hybrid::mtp_prefix(source).empty()) config.mtp = LayerSpec{attention, ffn};
  return config;
}

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names;
  names.trunk = find_prefix(source, {"model.language_model.", "language_model.model.", "model."},
                            "embed_tokens.weight");
  names.mtp = qwen_hybrid::mtp_names(source);
  return qwen_hybrid::Reader(source, config, names).read(head_is_tied(source));
}

constexpr std::array<std::string_view, 4> kModelTypes{"qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5",
                                                      "qwen3_5_text"};
constexpr std::array<std::string_view, 2> kEndTokens{"<|im_end|>", "<|endoftext|>"};

}  // namespace

constexpr Family kQwen35Moe{
    .name = "qwen3_5_moe",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
