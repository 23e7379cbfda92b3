#include "families/qwen_hybrid.h"

#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "families/common.h"
#include "families/rope_fields.h"
#include "source/tensor_lookup.h"

namespace moeflux::qwen_hybrid {
namespace {

GateActivation read_output_gate(const JsonFields& text) {
  require_one_of(text, "output_gate_type", {"silu", "swish", "sigmoid"});
  return text.string_or("output_gate_type", "silu") == "sigmoid" ? GateActivation::Sigmoid
                                                                 : GateActivation::Silu;
}

constexpr std::array<std::string_view, 5> kMtpPrefixes{"mtp.", "model.mtp.", "language_model.mtp.",
                                                       "language_model.model.mtp.",
                                                       "model.language_model.mtp."};

float mean_of(const ModelSource& source, const std::string& name, std::int64_t size) {
  const std::vector<float> values = read_vector(source, find_vector(source, name, size));
  return std::accumulate(values.begin(), values.end(), 0.0f) / static_cast<float>(size);
}

// Converters to MLX fold the +1 of this family's norms into the weights and swap the axes of
// conv1d; the shape of conv1d is the one reliable sign of it. A model without conv1d tells by the
// size of its norm weights.
bool norms_are_shifted(const ModelSource& source, const ModelConfig& config,
                       const std::string& trunk) {
  for (int i = 0; i < config.n_layers(); ++i) {
    const auto* delta =
        std::get_if<GatedDeltaSpec>(&config.layers[static_cast<std::size_t>(i)].mixer);
    if (delta == nullptr) continue;
    const std::string name = fmt::format("{}layers.{}.linear_attn.conv1d.weight", trunk, i);
    const auto& shape = need_tensor(source, name, "the config asks for it").shape;
    const std::int64_t width = delta->conv_width;
    if (shape.size() == 3 && shape[1] == width && shape[2] == 1) return true;
    if (shape.size() == 3 && shape[1] == 1 && shape[2] == width) return false;
    if (shape.size() == 2 && shape[1] == width)
      return source.conventions() != ModelSource::Layout::Safetensors;
    fail(Errc::BadInput, "{}: tensor {} has shape [{}], expected [{}, 1, {}] or [{}, {}, 1]",
         source.path(), name, fmt::join(shape, ", "), delta->conv_dim(), width, delta->conv_dim(),
         width);
  }
  return mean_of(source, trunk + "layers.0.input_layernorm.weight", config.d_model) >= 0.5f;
}

}  // namespace

std::vector<bool> read_attention_layers(const JsonFields& text, int n_layers) {
  const std::vector<std::string> types =
      read_layer_types(text, n_layers, {"full_attention", "linear_attention"});
  const auto interval = text.integer_or("full_attention_interval", 4, 1, kMaxSize);
  std::vector<bool> is_attention;
  for (int i = 0; i < n_layers; ++i) {
    is_attention.push_back(types.empty() ? (i + 1) % interval == 0
                                         : types[static_cast<std::size_t>(i)] == "full_attention");
  }
  return is_attention;
}

AttentionSpec read_attention(const JsonFields& text) {
  const int d_head = size_field(text, "head_dim");
  return {
      .n_heads = size_field(text, "num_attention_heads"),
      .n_kv_heads = size_field(text, "num_key_value_heads"),
      .d_head = d_head,
      .has_output_gate = true,
      .qk_norm = QkNorm::PerHead,
      .rope = RopeFields(text).make_partial(d_head, 0.25),
      .scale = 1.0f / std::sqrt(static_cast<float>(d_head)),
  };
}

GatedDeltaSpec read_delta(const JsonFields& text) {
  return {
      .n_key_heads = size_field(text, "linear_num_key_heads"),
      .n_value_heads = size_field(text, "linear_num_value_heads"),
      .d_key = size_field(text, "linear_key_head_dim"),
      .d_value = size_field(text, "linear_value_head_dim"),
      .conv_width = static_cast<int>(text.integer("linear_conv_kernel_dim", 1, kMaxConvWidth)),
      .output_gate = read_output_gate(text),
      // As converters to GGUF order them.
      .heads_alternate = text.boolean_or("linear_value_heads_alternate", false),
  };
}

std::string mtp_prefix(const ModelSource& source) {
  for (const std::string_view prefix : kMtpPrefixes) {
    if (has_module(source, std::string(prefix) + "fc")) return std::string(prefix);
  }
  return {};
}

MtpNames mtp_names(const ModelSource& source) {
  return {.prefix = mtp_prefix(source),
          .embed_norm = "pre_fc_norm_embedding",
          .hidden_norm = "pre_fc_norm_hidden",
          .fc = "fc",
          .layer = "layers.0.",
          .final_norm = "norm"};
}

Reader::Reader(const ModelSource& source, const ModelConfig& config, const TensorNames& names)
    : IndexReader(source, config, names),
      mtp_(names.mtp.prefix),
      all_are_shifted_(text_config(source).boolean_or("norms_include_one", false)),
      are_shifted_(all_are_shifted_ || norms_are_shifted(source, config, names.trunk)) {}

// Converters disagree on which norms of the MTP head they shift, so each of those speaks for
// itself.
StoredVector Reader::norm(const std::string& name, std::int64_t size) const {
  StoredVector vector = find_vector(source(), name, size);
  const bool is_of_mtp = !all_are_shifted_ && !mtp_.empty() && name.starts_with(mtp_);
  const bool is_shifted = are_shifted_ && !(is_of_mtp && mean_of(source(), name, size) < 0.5f);
  vector.shift = is_shifted ? 0.0f : 1.0f;
  return vector;
}

}  // namespace moeflux::qwen_hybrid
