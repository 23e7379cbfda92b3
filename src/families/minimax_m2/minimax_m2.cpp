#include "families/minimax_m2/minimax_m2.h"

#include <array>

#include "base/error.h"
#include "families/common.h"
#include "families/config_keys.h"
#include "families/mixtral/mixtral.h"
#include "families/rope_fields.h"

namespace moeflux {
namespace {

constexpr std::string_view kDefaults = R"({
  "vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62,
  "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
  "max_position_embeddings": 196608, "rms_norm_eps": 1e-6, "num_experts_per_tok": 8
})";
constexpr double kTheta = 5e6;

// Multipliers that an ancestor of this family had.
constexpr std::array<std::string_view, 6> kMultipliers{
    "layernorm_full_attention_alpha", "layernorm_linear_attention_alpha", "layernorm_mlp_alpha",
    "layernorm_full_attention_beta",  "layernorm_linear_attention_beta",  "layernorm_mlp_beta"};

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 14> kKeysRead{
    "num_attention_heads", "num_key_value_heads", "head_dim",         "rotary_dim",
    "use_qk_norm",         "qk_norm_type",        "use_routing_bias", "attn_type_list",
    kMultipliers[0],       kMultipliers[1],       kMultipliers[2],    kMultipliers[3],
    kMultipliers[4],       kMultipliers[5]};

void refuse_variants(const JsonFields& text) {
  require_one_of(text, "hidden_act", {"silu"});
  require_one_of(text, "scoring_func", {"sigmoid"});
  require_one_of(text, "qk_norm_type", {"per_layer"});
  require_boolean(text, "use_qk_norm", true);
  require_boolean(text, "use_routing_bias", true);
  require_integer(text, "shared_intermediate_size", {0});
  for (const std::string_view key : kMultipliers) {
    if (text.number_or(key, 1) != 1) {
      fail(Errc::Unsupported, "{}: \"{}\": {} is not supported (supported: 1)", text.origin(), key,
           text.number(key));
    }
  }
  const Json* types = text.find("attn_type_list");
  if (types == nullptr) return;
  for (const Json& type : *types) {
    if (type != 1) {
      fail(Errc::Unsupported, "{}: \"attn_type_list\" has {}; supported: 1, softmax attention",
           text.origin(), dump_json(type).substr(0, 80));
    }
  }
}

// `rotary_dim`, as the released model has it, or a share of the head.
RopeSpec read_rope(const JsonFields& text, int d_head) {
  const RopeFields rope(text, kTheta);
  if (!text.has("rotary_dim")) return rope.make_partial(d_head, 1);
  const int n_rot = size_field(text, "rotary_dim");
  const auto share = rope.number("partial_rotary_factor");
  if (share && static_cast<int>(d_head * *share) != n_rot) {
    fail(Errc::BadInput,
         "{}: \"rotary_dim\" is {}, but \"partial_rotary_factor\" {} of a head of {} is not",
         text.origin(), n_rot, *share, d_head);
  }
  return rope.make(n_rot, /*interleaved=*/false);
}

ModelConfig read_config(const ModelSource& source) {
  refuse_unread_keys(source, kKeysRead);
  const Json object = with_defaults(source, kDefaults);
  const JsonFields text(object, text_config(source).origin());
  refuse_variants(text);

  AttentionSpec attention = read_heads(text);
  attention.qk_norm = QkNorm::WholeRow;
  attention.rope = read_rope(text, attention.d_head);
  const MoeSpec moe{
      .n_experts = read_expert_count(text, 256),
      .top_k = size_field(text, "num_experts_per_tok"),
      .d_expert = size_field(text, "intermediate_size"),
      .router = {.scoring = RouterScoring::Sigmoid, .has_correction_bias = true},
  };
  ModelConfig config = read_sizes(text, kMinimaxM2.name);
  config.layers.assign(static_cast<std::size_t>(read_layer_count(text)), {attention, moe});
  return config;
}

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names = mixtral_names(source);
  names.correction_bias = "e_score_correction_bias";
  return IndexReader(source, config, names).read(head_is_tied(source));
}

constexpr std::array<std::string_view, 1> kModelTypes{"minimax_m2"};
constexpr std::array<std::string_view, 1> kEndTokens{"[e~["};

}  // namespace

constexpr Family kMinimaxM2{
    .name = "minimax_m2",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
