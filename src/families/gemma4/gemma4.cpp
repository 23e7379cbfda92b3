#include "families/gemma4/gemma4.h"

#include <array>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "families/common.h"
#include "families/config_keys.h"
#include "families/index_reader.h"
#include "families/rope_fields.h"

namespace moeflux {
namespace {

constexpr FfnActivation kGelu{.kind = FfnActivation::Kind::Gelu};

// As the reference has it where the config says nothing.
constexpr std::string_view kDefaults = R"({
  "vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
  "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "sliding_window": 512,
  "hidden_size_per_layer_input": 256
})";
constexpr std::string_view kDefaultRope = R"({
  "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
  "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
    "rope_theta": 1000000.0}
})";

// ---- config
// -------------------------------------------------------------------------------------------------

// "rope_parameters" has an object for each type of layer.
RopeSpec read_rope(const JsonFields& text, const std::string& layer_type, int d_head) {
  const Json* by_type = text.find("rope_parameters");
  const Json defaults = parse_json(kDefaultRope, "defaults");
  const JsonFields types(by_type == nullptr ? defaults : *by_type,
                         text.origin() + ": rope_parameters");
  if (!types.has(layer_type)) {
    fail(Errc::BadInput, "{}: \"{}\" is missing", types.origin(), layer_type);
  }
  const Json config = Json::object({{"rope_parameters", *types.find(layer_type)}});
  const JsonFields fields(config, fmt::format("{}: {}", types.origin(), layer_type));
  const RopeFields rope(fields);
  return rope.is_proportional() ? rope.make_partial(d_head, 1) : rope.make_whole(d_head);
}

// What differs between the layers of attention.
struct Heads {
  int d_head = 0;
  int n_kv_heads = 0;
};

// As older configs say it: keys of their own for global layers.
Heads read_heads_of_type(const JsonFields& text, bool is_global) {
  const bool has_own_width = is_global && text.has("global_head_dim");
  const bool has_own_number = is_global && text.boolean_or("attention_k_eq_v", false) &&
                              text.has("num_global_key_value_heads");
  return {.d_head = size_field(text, has_own_width ? "global_head_dim" : "head_dim"),
          .n_kv_heads = size_field(
              text, has_own_number ? "num_global_key_value_heads" : "num_key_value_heads")};
}

// As newer ones do: "per_layer_config" has an object for each layer that is not like the others.
std::vector<Heads> read_heads_by_layer(const JsonFields& text, std::size_t n_layers) {
  std::vector<Heads> heads(n_layers, read_heads_of_type(text, /*is_global=*/false));
  const JsonFields layers(*text.find("per_layer_config"), text.origin() + ": per_layer_config");
  for (const auto& [name, value] : layers.object().items()) {
    const auto index = to_number<std::size_t>(name);
    if (!index || *index >= n_layers) {
      fail(Errc::BadInput, "{}: \"{}\" is none of {} layers", layers.origin(), name, n_layers);
    }
    const JsonFields layer(value, fmt::format("{}: {}", layers.origin(), name));
    for (const auto& [key, ignored] : layer.object().items()) {
      if (key == "head_dim") {
        heads[*index].d_head = size_field(layer, key);
      } else if (key == "num_key_value_heads") {
        heads[*index].n_kv_heads = size_field(layer, key);
      } else {
        fail(Errc::Unsupported,
             "{}: \"{}\" is not supported; supported: head_dim, num_key_value_heads",
             layer.origin(), key);
      }
    }
  }
  return heads;
}

std::vector<Heads> read_heads_of_layers(const JsonFields& text,
                                        const std::vector<std::string>& types) {
  if (text.has("per_layer_config")) return read_heads_by_layer(text, types.size());
  std::vector<Heads> heads;
  for (const std::string& type : types)
    heads.push_back(read_heads_of_type(text, type == "full_attention"));
  return heads;
}

AttentionSpec read_attention(const JsonFields& text, const std::string& layer_type,
                             const Heads& heads) {
  const bool slides = layer_type == "sliding_attention";
  return {
      .n_heads = size_field(text, "num_attention_heads"),
      .n_kv_heads = heads.n_kv_heads,
      .d_head = heads.d_head,
      .qk_norm = QkNorm::PerHead,
      .has_value_norm = true,
      .values_are_keys = !slides && text.boolean_or("attention_k_eq_v", false),
      .window = slides ? size_field(text, "sliding_window") : 0,
      .rope = read_rope(text, layer_type, heads.d_head),
      .scale = 1,
  };
}

FfnSpec read_ffn(const JsonFields& text) {
  const int d_ff = size_field(text, "intermediate_size");
  if (!text.boolean_or("enable_moe_block", false))
    return DenseFfnSpec{.d_ff = d_ff, .activation = kGelu};
  return MoeSpec{
      .n_experts = size_field(text, "num_experts"),
      .top_k = size_field(text, "top_k_experts"),
      .d_expert = size_field(text, "moe_intermediate_size"),
      .router = {.has_norm = true, .has_expert_scales = true},
      .activation = kGelu,
      .d_shared = d_ff,
      .has_part_norms = true,
  };
}

std::vector<std::string> read_types(const JsonFields& text, int n_layers) {
  constexpr int kGlobalEvery = 6;
  std::vector<std::string> types =
      read_layer_types(text, n_layers, {"sliding_attention", "full_attention"});
  for (int i = static_cast<int>(types.size()); i < n_layers; ++i)
    types.emplace_back((i + 1) % kGlobalEvery == 0 ? "full_attention" : "sliding_attention");
  types.back() = "full_attention";  // whatever is listed
  return types;
}

// Of small models: embeddings and keys and values that several layers share.
void refuse_shared_parts(const JsonFields& text) {
  const auto per_layer = text.integer_or("hidden_size_per_layer_input", 0, 0, kMaxSize);
  if (per_layer != 0) {
    fail(Errc::Unsupported,
         "{}: \"hidden_size_per_layer_input\": {}: embeddings per layer (Gemma 4 E2B, E4B) are not "
         "supported",
         text.origin(), per_layer);
  }
  const auto n_shared = text.integer_or("num_kv_shared_layers", 0, 0, kMaxSize);
  if (n_shared != 0) {
    fail(Errc::Unsupported,
         "{}: \"num_kv_shared_layers\": {}: layers that use the keys and values of others are not "
         "supported",
         text.origin(), n_shared);
  }
}

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 11> kKeysRead{"num_attention_heads",
                                                     "num_key_value_heads",
                                                     "num_global_key_value_heads",
                                                     "head_dim",
                                                     "global_head_dim",
                                                     "attention_k_eq_v",
                                                     "sliding_window",
                                                     "num_kv_shared_layers",
                                                     "final_logit_softcapping",
                                                     "use_bidirectional_attention",
                                                     "per_layer_config"};

ModelConfig read_config(const ModelSource& source) {
  refuse_unread_keys(source, kKeysRead);
  const Json object = with_defaults(source, kDefaults);
  const JsonFields text(object, text_config(source).origin());
  require_one_of(text, "hidden_activation", {"gelu_pytorch_tanh"});
  require_one_of(text, "use_bidirectional_attention", {"vision"});  // of images only
  refuse_shared_parts(text);

  ModelConfig config = read_sizes(text, kGemma4.name);
  config.embed_scale = std::sqrt(static_cast<float>(config.d_model));
  config.logit_cap = static_cast<float>(text.number_or("final_logit_softcapping", 0));
  const std::vector<std::string> types = read_types(text, read_layer_count(text));
  const std::vector<Heads> heads = read_heads_of_layers(text, types);
  for (std::size_t i = 0; i < types.size(); ++i) {
    config.layers.push_back({.mixer = read_attention(text, types[i], heads[i]),
                             .ffn = read_ffn(text),
                             .has_post_norms = true,
                             .has_scale = true});
  }
  return config;
}

// ---- tensors
// ------------------------------------------------------------------------------------------------

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names;
  names.trunk = find_prefix(source, {"model.language_model.", "language_model.model.", "model."},
                            "embed_tokens.weight");
  names.mixer_post_norm = "post_attention_layernorm";
  names.ffn_norm = "pre_feedforward_layernorm";
  names.ffn_post_norm = "post_feedforward_layernorm";
  if (std::holds_alternative<MoeSpec>(config.layers.front().ffn)) {  // then all have experts
    names.mlp = "";
    names.shared = "mlp.";
    names.router = "router.proj";
    names.router_norm = "router.scale";
    names.expert_scales = "router.per_expert_scale";
    names.shared_post_norm = "post_feedforward_layernorm_1.weight";
    names.expert_norm = "pre_feedforward_layernorm_2.weight";
    names.expert_post_norm = "post_feedforward_layernorm_2.weight";
  }
  const JsonFields top(source.config(), source.config_origin());
  const bool tied = text_config(source).boolean_or("tie_word_embeddings",
                                                   top.boolean_or("tie_word_embeddings", true));
  return IndexReader(source, config, names).read(tied);
}

constexpr std::array<std::string_view, 2> kModelTypes{"gemma4", "gemma4_text"};
constexpr std::array<std::string_view, 4> kEndTokens{"<eos>", "<turn|>", "<end_of_turn>",
                                                     "<|tool_response>"};

}  // namespace

constexpr Family kGemma4{
    .name = "gemma4",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
