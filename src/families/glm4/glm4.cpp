#include "families/glm4/glm4.h"

#include <array>

#include "families/common.h"
#include "families/config_keys.h"
#include "families/index_reader.h"
#include "families/rope_fields.h"

namespace moeflux {
namespace {

constexpr std::string_view kDefaults = R"({
  "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40,
  "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
  "max_position_embeddings": 131072, "rms_norm_eps": 1.5625e-7
})";
constexpr double kTheta = 1e4, kRotaryShare = 0.5;

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 4> kKeysRead{"num_attention_heads", "num_key_value_heads",
                                                    "head_dim", "attention_bias"};

ModelConfig read_config(const ModelSource& source) {
  refuse_unread_keys(source, kKeysRead);
  const Json object = with_defaults(source, kDefaults);
  const JsonFields text(object, text_config(source).origin());
  require_one_of(text, "hidden_act", {"silu"});

  AttentionSpec attention = read_heads(text);
  attention.has_bias = text.boolean_or("attention_bias", true);
  attention.rope =
      RopeFields(text, kTheta).make_partial(attention.d_head, kRotaryShare, /*interleaved=*/true);
  const DenseFfnSpec ffn{.d_ff = size_field(text, "intermediate_size")};
  ModelConfig config = read_sizes(text, kGlm4.name);
  config.layers.assign(static_cast<std::size_t>(read_layer_count(text)),
                       {.mixer = attention, .ffn = ffn, .has_post_norms = true});
  return config;
}

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names;
  names.trunk = trunk_prefix(source);
  return IndexReader(source, config, names).read(head_is_tied(source));
}

constexpr std::array<std::string_view, 1> kModelTypes{"glm4"};
constexpr std::array<std::string_view, 3> kEndTokens{"<|endoftext|>", "<|user|>",
                                                     "<|observation|>"};

}  // namespace

constexpr Family kGlm4{
    .name = "glm4",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
