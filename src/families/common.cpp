#include "families/common.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace moeflux {

bool contains(Keys keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

JsonFields text_config(const ModelSource& source) {
  const auto it = source.config().find("text_config");
  if (it != source.config().end() && it->is_object()) {
    return JsonFields(*it, source.config_origin() + ": text_config");
  }
  return JsonFields(source.config(), source.config_origin());
}

Json with_defaults(const ModelSource& source, std::string_view defaults) {
  Json config = text_config(source).object();
  const Json others = parse_json(defaults, "defaults");
  for (const auto& [key, value] : others.items()) {
    if (!config.contains(key)) config[key] = value;
  }
  return config;
}

void require_one_of(const JsonFields& fields, std::string_view key,
                    std::initializer_list<std::string_view> values) {
  if (!fields.has(key)) return;
  const std::string value = fields.string(key);
  if (std::find(values.begin(), values.end(), value) == values.end()) {
    fail(Errc::Unsupported, "{}: \"{}\": \"{}\" is not supported (supported: {})", fields.origin(),
         key, value, fmt::join(values, ", "));
  }
}

void require_boolean(const JsonFields& fields, std::string_view key, bool value) {
  if (fields.boolean_or(key, value) != value) {
    fail(Errc::Unsupported, "{}: \"{}\": {} is not supported", fields.origin(), key, !value);
  }
}

void require_integer(const JsonFields& fields, std::string_view key,
                     std::initializer_list<std::int64_t> values) {
  if (!fields.has(key)) return;
  const std::int64_t value = fields.integer(key, INT64_MIN, INT64_MAX);
  if (std::find(values.begin(), values.end(), value) == values.end()) {
    fail(Errc::Unsupported, "{}: \"{}\": {} is not supported, the other sizes give {}",
         fields.origin(), key, value, fmt::join(values, " or "));
  }
}

int size_field(const JsonFields& fields, std::string_view key) {
  return static_cast<int>(fields.integer(key, 1, kMaxSize));
}

ModelConfig read_sizes(const JsonFields& text, std::string_view family) {
  return {
      .family = std::string(family),
      .d_model = size_field(text, "hidden_size"),
      .n_vocab = size_field(text, "vocab_size"),
      .context_length = static_cast<int>(text.integer("max_position_embeddings", 1, 1 << 28)),
      .norm_eps = static_cast<float>(text.number_or("rms_norm_eps", 1e-6)),
      .layers = {},
      .mtp = {},
  };
}

int read_layer_count(const JsonFields& text) {
  return static_cast<int>(text.integer("num_hidden_layers", 1, 4096));
}

std::vector<std::string> read_layer_types(const JsonFields& text, int n_layers,
                                          std::initializer_list<std::string_view> known) {
  std::vector<std::string> list;
  if (!text.has("layer_types")) return list;
  const Json& types = *text.find("layer_types");
  if (!types.is_array() || types.size() != static_cast<std::size_t>(n_layers)) {
    fail(Errc::BadInput, "{}: \"layer_types\" must list {} layers", text.origin(), n_layers);
  }
  for (const Json& type : types) {
    const auto is_type = [&](std::string_view name) { return type == name; };
    if (std::none_of(known.begin(), known.end(), is_type)) {
      fail(Errc::Unsupported, "{}: layer_types[{}] is {}; supported: {}", text.origin(),
           list.size(), dump_json(type), fmt::join(known, ", "));
    }
    list.push_back(type.get<std::string>());
  }
  return list;
}

std::vector<bool> read_moe_layers(const JsonFields& text, int n_layers) {
  const auto step = text.integer_or("decoder_sparse_step", 1, 1, kMaxSize);
  std::vector<bool> is_moe;
  for (int i = 0; i < n_layers; ++i) is_moe.push_back((i + 1) % step == 0);
  if (!text.has("mlp_only_layers")) return is_moe;
  const Json& dense = *text.find("mlp_only_layers");
  const auto is_number = [](const Json& layer) { return layer.is_number_integer(); };
  if (!dense.is_array() || !std::all_of(dense.begin(), dense.end(), is_number)) {
    fail(Errc::BadInput, "{}: \"mlp_only_layers\" must be a list of integers", text.origin());
  }
  for (const Json& layer : dense) {
    if (layer >= 0 && layer < n_layers) is_moe[layer.get<std::size_t>()] = false;
  }
  return is_moe;
}

AttentionSpec read_heads(const JsonFields& text) {
  const int n_heads = size_field(text, "num_attention_heads");
  const int d_head = text.has("head_dim") ? size_field(text, "head_dim")
                                          : size_field(text, "hidden_size") / n_heads;
  return {
      .n_heads = n_heads,
      .n_kv_heads = static_cast<int>(text.integer_or("num_key_value_heads", n_heads, 1, kMaxSize)),
      .d_head = d_head,
      .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d_head))),
  };
}

int read_window(const JsonFields& text) {
  return static_cast<int>(text.integer_or("sliding_window", 0, 1, 1 << 28));
}

int read_expert_count(const JsonFields& text, int fallback) {
  std::string_view found;
  for (const std::string_view key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (!text.has(key)) continue;
    const int count = static_cast<int>(text.integer(key, 0, kMaxSize));
    if (!found.empty() && count != fallback) {
      fail(Errc::BadInput, "{}: \"{}\" is {}, but \"{}\" is {}", text.origin(), found, fallback,
           key, count);
    }
    found = key;
    fallback = count;
  }
  return fallback;
}

MoeSpec read_grouped_moe(const JsonFields& text, int n_experts, int n_shared) {
  const auto n = text.integer_or("n_shared_experts", n_shared, 0, 1 << 12);
  const int d_expert = size_field(text, "moe_intermediate_size");
  return {
      .n_experts = n_experts,
      .top_k = size_field(text, "num_experts_per_tok"),
      .d_expert = d_expert,
      .router =
          {
              .scoring = RouterScoring::Sigmoid,
              .has_correction_bias = true,
              .n_groups = static_cast<int>(text.integer_or("n_group", 1, 1, kMaxSize)),
              .top_groups = static_cast<int>(text.integer_or("topk_group", 1, 1, kMaxSize)),
              .normalize = text.boolean_or("norm_topk_prob", true),
              .scale = static_cast<float>(text.number_or("routed_scaling_factor", 1.0)),
          },
      // Too many: more than validate() allows.
      .d_shared = static_cast<int>(n * d_expert > kMaxSize ? kMaxSize + 1 : n * d_expert),
      .shared_is_gated = false,
  };
}

bool head_is_tied(const ModelSource& source) {
  const JsonFields top(source.config(), source.config_origin());
  return text_config(source).boolean_or("tie_word_embeddings",
                                        top.boolean_or("tie_word_embeddings", false));
}

}  // namespace moeflux
