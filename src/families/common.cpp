#include "families/common.h"

#include <algorithm>

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

}  // namespace moeflux
