#include "families/qwen3_moe/qwen3_moe.h"

#include <array>
#include <vector>

#include "families/common.h"
#include "families/config_keys.h"
#include "families/index_reader.h"
#include "families/rope_fields.h"

namespace moeflux {
namespace {

constexpr std::string_view kDefaults = R"({
  "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24,
  "num_attention_heads": 32, "num_key_value_heads": 4, "max_position_embeddings": 32768,
  "rms_norm_eps": 1e-6, "sliding_window": 4096, "moe_intermediate_size": 768,
  "num_experts_per_tok": 8
})";
constexpr double kTheta = 1e4;

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 10> kKeysRead{
    "num_attention_heads", "num_key_value_heads", "head_dim",
    "attention_bias",      "norm_topk_prob",      "use_sliding_window",
    "sliding_window",      "use_qk_norm",         "qkv_bias",
    "max_window_layers"};  // which only the dense Qwen3 heeds

AttentionSpec read_attention(const JsonFields& text) {
  AttentionSpec attention = read_heads(text);
  attention.has_bias = attention.has_out_bias = text.boolean_or("attention_bias", false);
  attention.qk_norm = QkNorm::PerHead;
  attention.rope = RopeFields(text, kTheta).make_whole(attention.d_head);
  if (text.boolean_or("use_sliding_window", false)) attention.window = read_window(text);
  return attention;
}

// Without experts: dense.
FfnSpec read_ffn(const JsonFields& text, int n_experts) {
  if (n_experts == 0) return DenseFfnSpec{.d_ff = size_field(text, "intermediate_size")};
  return MoeSpec{.n_experts = n_experts,
                 .top_k = size_field(text, "num_experts_per_tok"),
                 .d_expert = size_field(text, "moe_intermediate_size"),
                 .router = {.normalize = text.boolean_or("norm_topk_prob", false)}};
}

ModelConfig read_config(const ModelSource& source) {
  refuse_unread_keys(source, kKeysRead);
  const Json object = with_defaults(source, kDefaults);
  const JsonFields text(object, text_config(source).origin());
  require_one_of(text, "hidden_act", {"silu"});
  require_boolean(text, "use_qk_norm", true);
  require_boolean(text, "qkv_bias", false);
  require_integer(text, "shared_expert_intermediate_size", {0});

  ModelConfig config = read_sizes(text, kQwen3Moe.name);
  const AttentionSpec attention = read_attention(text);
  const int n_experts = read_expert_count(text, 128);
  const std::vector<bool> is_moe = read_moe_layers(text, read_layer_count(text));
  for (std::size_t i = 0; i < is_moe.size(); ++i)
    config.layers.push_back({attention, read_ffn(text, is_moe[i] ? n_experts : 0)});
  return config;
}

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names;
  names.trunk = trunk_prefix(source);
  return IndexReader(source, config, names).read(head_is_tied(source));
}

constexpr std::array<std::string_view, 1> kModelTypes{"qwen3_moe"};
constexpr std::array<std::string_view, 2> kEndTokens{"<|im_end|>", "<|endoftext|>"};

}  // namespace

constexpr Family kQwen3Moe{
    .name = "qwen3_moe",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
