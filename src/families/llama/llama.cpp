#include "families/llama/llama.h"

#include <array>

#include "families/common.h"
#include "families/config_keys.h"
#include "families/index_reader.h"
#include "families/rope_fields.h"

namespace moeflux {
namespace {

constexpr std::string_view kDefaults = R"({
  "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
  "num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6
})";
constexpr double kTheta = 1e4;

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 5> kKeysRead{
    "num_attention_heads", "num_key_value_heads", "head_dim", "attention_bias", "rope_interleave"};

ModelConfig read_config(const ModelSource& source) {
  refuse_unread_keys(source, kKeysRead);
  const Json object = with_defaults(source, kDefaults);
  const JsonFields text(object, text_config(source).origin());
  require_one_of(text, "hidden_act", {"silu"});

  AttentionSpec attention = read_heads(text);
  attention.has_bias = attention.has_out_bias = text.boolean_or("attention_bias", false);
  attention.rope = RopeFields(text, kTheta)
                       .make_whole(attention.d_head, text.boolean_or("rope_interleave", false));
  const DenseFfnSpec ffn{.d_ff = size_field(text, "intermediate_size")};
  ModelConfig config = read_sizes(text, kLlama.name);
  config.layers.assign(static_cast<std::size_t>(read_layer_count(text)), {attention, ffn});
  return config;
}

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names;
  names.trunk = trunk_prefix(source);
  return IndexReader(source, config, names).read(head_is_tied(source));
}

constexpr std::array<std::string_view, 1> kModelTypes{"llama"};
// Of Llama 2 and 3, and of those that were trained on chats in the ChatML manner.
constexpr std::array<std::string_view, 6> kEndTokens{
    "</s>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|endoftext|>"};

}  // namespace

constexpr Family kLlama{
    .name = "llama",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
