#include "families/qwen3_5_moe/qwen3_5_moe.h"

#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "families/common.h"
#include "families/config_keys.h"
#include "families/index_reader.h"
#include "families/rope_fields.h"
#include "source/tensor_lookup.h"

namespace moeflux {
namespace {

// ---- config
// -------------------------------------------------------------------------------------------------

GateActivation read_output_gate(const JsonFields& text) {
  require_one_of(text, "output_gate_type", {"silu", "swish", "sigmoid"});
  return text.string_or("output_gate_type", "silu") == "sigmoid" ? GateActivation::Sigmoid
                                                                 : GateActivation::Silu;
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
  };
}

FfnSpec read_ffn(const JsonFields& text) {
  if (!text.has("num_experts")) return DenseFfnSpec{.d_ff = size_field(text, "intermediate_size")};
  return MoeSpec{
      .n_experts = size_field(text, "num_experts"),
      .top_k = size_field(text, "num_experts_per_tok"),
      .d_expert = size_field(text, "moe_intermediate_size"),
      // Softmax over all experts, the chosen ones renormalised, whatever norm_topk_prob says: this
      // family always does.
      .router = {},
      .d_shared = size_field(text, "shared_expert_intermediate_size"),
      .shared_is_gated = true,
  };
}

std::vector<bool> read_attention_layers(const JsonFields& text, int n_layers) {
  std::vector<bool> is_attention(static_cast<std::size_t>(n_layers));
  const Json* types = text.find("layer_types");
  if (types == nullptr) {
    const auto interval = text.integer_or("full_attention_interval", 4, 1, kMaxSize);
    for (int i = 0; i < n_layers; ++i)
      is_attention[static_cast<std::size_t>(i)] = (i + 1) % interval == 0;
    return is_attention;
  }
  if (!types->is_array() || types->size() != static_cast<std::size_t>(n_layers)) {
    fail(Errc::BadInput, "{}: \"layer_types\" must list {} layers", text.origin(), n_layers);
  }
  for (std::size_t i = 0; i < types->size(); ++i) {
    const Json& type = (*types)[i];
    if (type != "full_attention" && type != "linear_attention") {
      fail(Errc::Unsupported,
           "{}: layer_types[{}] is {}; supported: full_attention, linear_attention", text.origin(),
           i, dump_json(type));
    }
    is_attention[i] = type == "full_attention";
  }
  return is_attention;
}

constexpr std::array<std::string_view, 5> kMtpPrefixes{"mtp.", "model.mtp.", "language_model.mtp.",
                                                       "language_model.model.mtp.",
                                                       "model.language_model.mtp."};

std::string mtp_prefix(const ModelSource& source) {  // empty without a head
  for (const std::string_view prefix : kMtpPrefixes) {
    if (has_module(source, std::string(prefix) + "fc")) return std::string(prefix);
  }
  return {};
}

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 10> kKeysRead{
    "num_attention_heads",     "num_key_value_heads", "head_dim",
    "full_attention_interval", "attn_output_gate",    "layer_scale",
    "linear_num_key_heads",    "linear_key_head_dim", "linear_num_value_heads",
    "linear_value_head_dim"};

ModelConfig read_config(const ModelSource& source) {
  const JsonFields text = text_config(source);
  require_one_of(text, "hidden_act", {"silu"});
  require_boolean(text, "attn_output_gate", true);
  require_boolean(text, "layer_scale", false);
  require_boolean(text, "mtp_use_dedicated_embeddings", false);
  refuse_unread_keys(source, kKeysRead);

  ModelConfig config = read_sizes(text, kQwen35Moe.name);
  const int n_layers = read_layer_count(text);
  const FfnSpec ffn = read_ffn(text);
  const AttentionSpec attention = read_attention(text);
  const std::vector<bool> is_attention = read_attention_layers(text, n_layers);
  config.layers.assign(is_attention.size(), {attention, ffn});
  for (std::size_t i = 0; i < is_attention.size(); ++i) {
    if (!is_attention[i]) config.layers[i].mixer = read_delta(text);
  }
  if (!mtp_prefix(source).empty()) config.mtp = LayerSpec{attention, ffn};
  return config;
}

// ---- tensors
// ------------------------------------------------------------------------------------------------

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

class QwenReader : public IndexReader {
 public:
  QwenReader(const ModelSource& source, const ModelConfig& config, const TensorNames& names)
      : IndexReader(source, config, names),
        mtp_(names.mtp.prefix),
        are_shifted_(norms_are_shifted(source, config, names.trunk)) {}

 private:
  // This family applies its norms as (1 + w). Converters disagree on which norms of the MTP head
  // they shift, so each of those speaks for itself.
  StoredVector norm(const std::string& name, std::int64_t size) const override {
    StoredVector vector = find_vector(source(), name, size);
    const bool is_of_mtp = !mtp_.empty() && name.starts_with(mtp_);
    const bool is_shifted = are_shifted_ && !(is_of_mtp && mean_of(source(), name, size) < 0.5f);
    vector.shift = is_shifted ? 0.0f : 1.0f;
    return vector;
  }

  std::string mtp_;
  bool are_shifted_;  // stored norm weights already contain the +1
};

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names;
  names.trunk = find_prefix(source, {"model.language_model.", "language_model.model.", "model."},
                            "embed_tokens.weight");
  names.mtp = {.prefix = mtp_prefix(source),
               .embed_norm = "pre_fc_norm_embedding",
               .hidden_norm = "pre_fc_norm_hidden",
               .fc = "fc",
               .layer = "layers.0.",
               .final_norm = "norm"};
  return QwenReader(source, config, names).read(head_is_tied(source));
}

constexpr std::array<std::string_view, 4> kModelTypes{"qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5",
                                                      "qwen3_5_text"};
constexpr std::array<std::string_view, 2> kEndTokens{"<|im_end|>", "<|endoftext|>"};

}  // namespace

constexpr Family kQwen35Moe{
    .name = "qwen3_5_moe",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
