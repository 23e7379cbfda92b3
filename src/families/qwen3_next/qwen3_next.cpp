#include "families/qwen3_next/qwen3_next.h"

#include <array>

#include "families/common.h"
#include "families/config_keys.h"
#include "families/qwen_hybrid.h"

namespace moeflux {
namespace {

// As the reference has it where the config says nothing.
constexpr std::string_view kDefaults = R"({
  "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48,
  "head_dim": 256, "num_attention_heads": 16, "num_key_value_heads": 2,
  "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
  "linear_num_key_heads": 16, "linear_num_value_heads": 32, "num_experts": 512,
  "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
  "max_position_embeddings": 32768, "rms_norm_eps": 1e-6
})";

MoeSpec read_moe(const JsonFields& text) {
  return {
      .n_experts = size_field(text, "num_experts"),
      .top_k = size_field(text, "num_experts_per_tok"),
      .d_expert = size_field(text, "moe_intermediate_size"),
      .router = {.normalize = text.boolean_or("norm_topk_prob", true)},
      .d_shared = size_field(text, "shared_expert_intermediate_size"),
      .shared_is_gated = true,
  };
}

AttentionSpec read_attention(const JsonFields& text) {
  AttentionSpec spec = qwen_hybrid::read_attention(text);
  spec.has_bias = spec.has_out_bias = text.boolean_or("attention_bias", false);
  return spec;
}

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 10> kKeysRead{
    "num_attention_heads",     "num_key_value_heads",    "head_dim",
    "full_attention_interval", "attention_bias",         "linear_num_key_heads",
    "linear_key_head_dim",     "linear_num_value_heads", "linear_value_head_dim",
    "norms_include_one"};

ModelConfig read_config(const ModelSource& source) {
  refuse_unread_keys(source, kKeysRead);
  const Json object = with_defaults(source, kDefaults);
  const JsonFields text(object, source.config_origin());
  require_one_of(text, "hidden_act", {"silu"});

  ModelConfig config = read_sizes(text, kQwen3Next.name);
  const int n_layers = read_layer_count(text);
  const MoeSpec moe = read_moe(text);
  const AttentionSpec attention = read_attention(text);
  const std::vector<bool> is_attention = qwen_hybrid::read_attention_layers(text, n_layers);
  const std::vector<bool> is_moe = read_moe_layers(text, n_layers);
  for (std::size_t i = 0; i < is_attention.size(); ++i) {
    LayerSpec& layer = config.layers.emplace_back(LayerSpec{attention, moe});
    if (!is_attention[i]) layer.mixer = qwen_hybrid::read_delta(text);
    if (!is_moe[i]) layer.ffn = DenseFfnSpec{.d_ff = size_field(text, "intermediate_size")};
  }
  if (!qwen_hybrid::mtp_prefix(source).empty()) config.mtp = LayerSpec{attention, moe};
  return config;
}

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names;
  names.mtp = qwen_hybrid::mtp_names(source);
  return qwen_hybrid::Reader(source, config, names).read(head_is_tied(source));
}

constexpr std::array<std::string_view, 1> kModelTypes{"qwen3_next"};
constexpr std::array<std::string_view, 2> kEndTokens{"<|im_end|>", "<|endoftext|>"};

}  // namespace

constexpr Family kQwen3Next{
    .name = "qwen3_next",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
