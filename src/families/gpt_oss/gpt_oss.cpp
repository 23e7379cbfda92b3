#include "families/gpt_oss/gpt_oss.h"

#include <array>

#include "families/common.h"
#include "families/config_keys.h"
#include "families/index_reader.h"
#include "families/rope_fields.h"

namespace moeflux {
namespace {

constexpr float kSwigluAlpha = 1.702f;  // not in any config
constexpr double kTheta = 150000;

// As the reference has it where the config says nothing.
constexpr std::string_view kDefaults = R"({
  "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36,
  "head_dim": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "attention_bias": true,
  "sliding_window": 128, "num_experts_per_tok": 4, "max_position_embeddings": 131072,
  "rms_norm_eps": 1e-5
})";
constexpr std::string_view kDefaultRope = R"({
  "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
  "original_max_position_embeddings": 4096
})";

Json config_with_defaults(const ModelSource& source) {
  Json config = with_defaults(source, kDefaults);
  const JsonFields fields(config, source.config_origin());
  if (!fields.has("rope_parameters") && !fields.has("rope_scaling") && !fields.has("rope_type"))
    config["rope_scaling"] = parse_json(kDefaultRope, "defaults");
  return config;
}

AttentionSpec read_attention(const JsonFields& config) {
  AttentionSpec attention = read_heads(config);
  attention.has_bias = attention.has_out_bias = config.boolean_or("attention_bias", true);
  attention.has_sinks = true;
  attention.rope = RopeFields(config, kTheta).make_whole(attention.d_head);
  return attention;
}

MoeSpec read_moe(const JsonFields& config) {
  const int top_k = size_field(config, "num_experts_per_tok");
  require_integer(config, "experts_per_token", {top_k});
  return {
      .n_experts = read_expert_count(config, 128),
      .top_k = top_k,
      .d_expert = size_field(config, "intermediate_size"),
      .router = {.scores_chosen = true, .has_bias = true},
      .activation = {.kind = FfnActivation::Kind::ClampedSwiglu,
                     .alpha = kSwigluAlpha,
                     .limit = static_cast<float>(config.number_or("swiglu_limit", 7.0))},
      .has_expert_bias = true,
  };
}

// Which layers see only a window; every other one from the first on where nothing is said.
std::vector<bool> read_sliding_layers(const JsonFields& config, int n_layers) {
  std::vector<bool> slides;
  const std::vector<std::string> types =
      read_layer_types(config, n_layers, {"sliding_attention", "full_attention"});
  for (int i = 0; i < n_layers; ++i) {
    slides.push_back(types.empty() ? i % 2 == 0
                                   : types[static_cast<std::size_t>(i)] == "sliding_attention");
  }
  return slides;
}

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 5> kKeysRead{"num_attention_heads", "num_key_value_heads",
                                                    "head_dim", "attention_bias", "sliding_window"};

ModelConfig read_config(const ModelSource& source) {
  refuse_unread_keys(source, kKeysRead);
  const Json object = config_with_defaults(source);
  const JsonFields config(object, source.config_origin());
  require_one_of(config, "hidden_act", {"silu"});

  ModelConfig model = read_sizes(config, kGptOss.name);
  const AttentionSpec attention = read_attention(config);
  const MoeSpec moe = read_moe(config);
  for (const bool slides : read_sliding_layers(config, read_layer_count(config))) {
    LayerSpec& layer = model.layers.emplace_back(LayerSpec{attention, moe});
    if (slides) std::get<AttentionSpec>(layer.mixer).window = size_field(config, "sliding_window");
  }
  return model;
}

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names;
  names.router = "router";
  names.gate_up_alternates = true;
  return IndexReader(source, config, names).read(head_is_tied(source));
}

constexpr std::array<std::string_view, 1> kModelTypes{"gpt_oss"};
// <|end|> only ends a message; the answer may go on in another channel.
constexpr std::array<std::string_view, 3> kEndTokens{"<|return|>", "<|call|>", "<|endoftext|>"};

}  // namespace

constexpr Family kGptOss{
    .name = "gpt_oss",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
