#include "families/olmoe/olmoe.h"

#include <array>

#include "base/error.h"
#include "families/common.h"
#include "families/config_keys.h"
#include "families/index_reader.h"
#include "families/rope_fields.h"

namespace moeflux {
namespace {

constexpr std::string_view kDefaults = R"({
  "vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 2048, "num_hidden_layers": 16,
  "num_attention_heads": 16, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
  "num_experts_per_tok": 8
})";
constexpr double kTheta = 1e4;

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 6> kKeysRead{
    "num_attention_heads", "num_key_value_heads", "head_dim", "attention_bias", "clip_qkv",
    "norm_topk_prob"};

float read_qkv_limit(const JsonFields& text) {
  if (!text.has("clip_qkv")) return 0;
  const double limit = text.number("clip_qkv");
  if (!(limit > 0)) {
    fail(Errc::BadInput, "{}: \"clip_qkv\" is {}, but must be above 0", text.origin(), limit);
  }
  return static_cast<float>(limit);
}

AttentionSpec read_attention(const JsonFields& text) {
  AttentionSpec attention = read_heads(text);
  // The norms span the hidden size, whatever a stray head size says.
  require_integer(text, "head_dim", {size_field(text, "hidden_size") / attention.n_heads});
  attention.has_bias = attention.has_out_bias = text.boolean_or("attention_bias", false);
  attention.qk_norm = QkNorm::WholeRow;
  attention.qkv_limit = read_qkv_limit(text);
  attention.rope = RopeFields(text, kTheta).make_whole(attention.d_head);
  return attention;
}

ModelConfig read_config(const ModelSource& source) {
  refuse_unread_keys(source, kKeysRead);
  const Json object = with_defaults(source, kDefaults);
  const JsonFields text(object, text_config(source).origin());
  require_one_of(text, "hidden_act", {"silu"});

  const MoeSpec moe{.n_experts = read_expert_count(text, 64),
                    .top_k = size_field(text, "num_experts_per_tok"),
                    .d_expert = size_field(text, "intermediate_size"),
                    .router = {.normalize = text.boolean_or("norm_topk_prob", false)}};
  ModelConfig config = read_sizes(text, kOlmoe.name);
  config.layers.assign(static_cast<std::size_t>(read_layer_count(text)),
                       {read_attention(text), moe});
  return config;
}

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names;
  names.trunk = trunk_prefix(source);
  return IndexReader(source, config, names).read(head_is_tied(source));
}

constexpr std::array<std::string_view, 1> kModelTypes{"olmoe"};
constexpr std::array<std::string_view, 1> kEndTokens{"<|endoftext|>"};

}  // namespace

constexpr Family kOlmoe{
    .name = "olmoe",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
