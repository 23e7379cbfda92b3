#include "families/glm4_moe/glm4_moe.h"

#include <array>

#include "families/common.h"
#include "families/config_keys.h"
#include "families/index_reader.h"
#include "families/rope_fields.h"

namespace moeflux {
namespace {

constexpr std::string_view kDefaults = R"({
  "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 10944, "num_hidden_layers": 46,
  "num_attention_heads": 96, "num_key_value_heads": 8, "max_position_embeddings": 131072,
  "rms_norm_eps": 1e-5, "moe_intermediate_size": 1408, "num_experts_per_tok": 8
})";
constexpr double kTheta = 1e4, kRotaryShare = 0.5;

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 7> kKeysRead{
    "num_attention_heads", "num_key_value_heads",  "head_dim", "attention_bias", "use_qk_norm",
    "norm_topk_prob",      "routed_scaling_factor"};

AttentionSpec read_attention(const JsonFields& text) {
  AttentionSpec attention = read_heads(text);
  attention.has_bias = text.boolean_or("attention_bias", false);
  if (text.boolean_or("use_qk_norm", false)) attention.qk_norm = QkNorm::PerHead;
  attention.rope = RopeFields(text, kTheta).make_partial(attention.d_head, kRotaryShare);
  return attention;
}

ModelConfig read_config(const ModelSource& source) {
  refuse_unread_keys(source, kKeysRead);
  const Json object = with_defaults(source, kDefaults);
  const JsonFields text(object, text_config(source).origin());
  require_one_of(text, "hidden_act", {"silu"});
  require_one_of(text, "scoring_func", {"sigmoid"});
  require_one_of(text, "topk_method", {"noaux_tc"});

  ModelConfig config = read_sizes(text, kGlm4Moe.name);
  const int n_layers = read_layer_count(text);
  const auto n_dense = text.integer_or("first_k_dense_replace", 1, 0, kMaxSize);
  const AttentionSpec attention = read_attention(text);
  const MoeSpec moe = read_grouped_moe(text, read_expert_count(text, 128), /*n_shared=*/1);
  for (int i = 0; i < n_layers; ++i) {
    config.layers.push_back(
        {attention, i >= n_dense
                        ? FfnSpec(moe)
                        : FfnSpec(DenseFfnSpec{.d_ff = size_field(text, "intermediate_size")})});
  }
  if (has_mtp_layer(source, n_layers)) config.mtp = LayerSpec{attention, moe};
  return config;
}

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names;
  names.trunk = trunk_prefix(source);
  names.shared = "shared_experts.";
  names.mtp = mtp_layer_names(source, config.n_layers());
  return IndexReader(source, config, names).read(head_is_tied(source));
}

constexpr std::array<std::string_view, 1> kModelTypes{"glm4_moe"};
constexpr std::array<std::string_view, 3> kEndTokens{"<|endoftext|>", "<|user|>",
                                                     "<|observation|>"};

}  // namespace

constexpr Family kGlm4Moe{
    .name = "glm4_moe",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
