#include "families/mixtral/mixtral.h"

#include <array>

#include "families/common.h"
#include "families/config_keys.h"
#include "families/rope_fields.h"

namespace moeflux {
namespace {

constexpr std::string_view kDefaults = R"({
  "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
  "rms_norm_eps": 1e-5, "num_experts_per_tok": 2
})";
constexpr double kTheta = 1e6;

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 5> kKeysRead{
    "num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window", "rope_interleave"};

ModelConfig read_config(const ModelSource& source) {
  refuse_unread_keys(source, kKeysRead);
  const Json object = with_defaults(source, kDefaults);
  const JsonFields text(object, text_config(source).origin());
  require_one_of(text, "hidden_act", {"silu"});

  AttentionSpec attention = read_heads(text);
  attention.rope = RopeFields(text, kTheta)
                       .make_whole(attention.d_head, text.boolean_or("rope_interleave", false));
  attention.window = read_window(text);
  const MoeSpec moe{.n_experts = read_expert_count(text, 8),
                    .top_k = size_field(text, "num_experts_per_tok"),
                    .d_expert = size_field(text, "intermediate_size")};
  ModelConfig config = read_sizes(text, kMixtral.name);
  config.layers.assign(static_cast<std::size_t>(read_layer_count(text)), {attention, moe});
  return config;
}

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  return IndexReader(source, config, mixtral_names(source)).read(head_is_tied(source));
}

constexpr std::array<std::string_view, 1> kModelTypes{"mixtral"};
constexpr std::array<std::string_view, 1> kEndTokens{"</s>"};

}  // namespace

TensorNames mixtral_names(const ModelSource& source) {
  TensorNames names;
  names.trunk = trunk_prefix(source);
  if (has_tensors_below(source, names.trunk + "layers.0.block_sparse_moe."))
    names.mlp = "block_sparse_moe.";
  names.gate = "w1";
  names.up = "w3";
  names.down = "w2";
  return names;
}

constexpr Family kMixtral{
    .name = "mixtral",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
