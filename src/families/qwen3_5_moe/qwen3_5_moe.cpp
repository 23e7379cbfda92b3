#include "families/qwen3_5_moe/qwen3_5_moe.h"

#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "families/common.h"
#include "families/config_keys.h"
#include "families/rope_fields.h"
#include "source/tensor_lookup.h"

namespace moeflux {
namespace {

constexpr std::int64_t kMaxSize =
    1 << 24;  // validate() has the exact rules; this keeps an int an int

int size_field(const JsonFields& fields, std::string_view key) {
  return static_cast<int>(fields.integer(key, 1, kMaxSize));
}

// ---- config
// -------------------------------------------------------------------------------------------------

GateActivation read_output_gate(const JsonFields& text) {
  require_one_of(text, "output_gate_type", {"silu", "swish", "sigmoid"});
  return text.string_or("output_gate_type", "silu") == "sigmoid" ? GateActivation::Sigmoid
                                                                 : GateActivation::Silu;
}

GatedAttentionSpec read_attention(const JsonFields& text) {
  const int d_head = size_field(text, "head_dim");
  const RopeFields rope(text);
  const double rotary_share = rope.number("partial_rotary_factor").value_or(0.25);
  if (!(rotary_share > 0 && rotary_share <= 1)) {
    fail(Errc::BadInput, "{}: partial_rotary_factor is {}, outside of 0 to 1", text.origin(),
         rotary_share);
  }
  return {
      .n_heads = size_field(text, "num_attention_heads"),
      .n_kv_heads = size_field(text, "num_key_value_heads"),
      .d_head = d_head,
      .rope = rope.make(static_cast<int>(d_head * rotary_share), /*interleaved=*/false),
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

  ModelConfig config{
      .family = std::string(kQwen35Moe.name),
      .d_model = size_field(text, "hidden_size"),
      .n_vocab = size_field(text, "vocab_size"),
      .context_length = static_cast<int>(text.integer("max_position_embeddings", 1, 1 << 28)),
      .norm_eps = static_cast<float>(text.number_or("rms_norm_eps", 1e-6)),
      .layers = {},
      .mtp = {},
  };
  const int n_layers = static_cast<int>(text.integer("num_hidden_layers", 1, 4096));
  const FfnSpec ffn = read_ffn(text);
  const GatedAttentionSpec attention = read_attention(text);
  for (const bool is_attention : read_attention_layers(text, n_layers)) {
    config.layers.push_back(
        {is_attention ? MixerSpec(attention) : MixerSpec(read_delta(text)), ffn});
  }
  if (!mtp_prefix(source).empty()) config.mtp = LayerSpec{attention, ffn};
  return config;
}

// ---- tensors
// ------------------------------------------------------------------------------------------------

class IndexReader {
 public:
  IndexReader(const ModelSource& source, const ModelConfig& config)
      : source_(source),
        config_(config),
        trunk_(find_prefix(source, {"model.language_model.", "language_model.model.", "model."},
                           "embed_tokens.weight")),
        norms_are_shifted_(decide_convention()) {}

  ModelIndex read() {
    ModelIndex index;
    const int d = config_.d_model;
    index.tensors.embed = find_matrix(source_, trunk_ + "embed_tokens", config_.n_vocab, d);
    index.tensors.final_norm = norm(trunk_ + "norm.weight", d);
    if (!tied()) {
      const std::string prefix =
          find_prefix(source_, {"", "language_model.", "model."}, "lm_head.weight");
      index.tensors.head = find_matrix(source_, prefix + "lm_head", config_.n_vocab, d);
    }
    for (int i = 0; i < config_.n_layers(); ++i) {
      const std::string prefix = fmt::format("{}layers.{}.", trunk_, i);
      index.tensors.layers.push_back(
          layer(prefix, config_.layers[static_cast<std::size_t>(i)], index.experts));
    }
    if (config_.mtp) index.tensors.mtp = mtp(index.experts);
    return index;
  }

 private:
  // Converters to MLX fold the +1 of this family's norms into the weights and swap the axes of
  // conv1d; the shape of conv1d is the one reliable sign of it. A model without conv1d tells by the
  // size of its norm weights.
  bool decide_convention() const {
    for (int i = 0; i < config_.n_layers(); ++i) {
      const auto* delta =
          std::get_if<GatedDeltaSpec>(&config_.layers[static_cast<std::size_t>(i)].mixer);
      if (delta == nullptr) continue;
      const std::string name = fmt::format("{}layers.{}.linear_attn.conv1d.weight", trunk_, i);
      const auto& shape = need_tensor(source_, name, "the config asks for it").shape;
      const std::int64_t width = delta->conv_width;
      if (shape.size() == 3 && shape[1] == width && shape[2] == 1) return true;
      if (shape.size() == 3 && shape[1] == 1 && shape[2] == width) return false;
      if (shape.size() == 2 && shape[1] == width)
        return source_.conventions() != ModelSource::Layout::Safetensors;
      fail(Errc::BadInput, "{}: tensor {} has shape [{}], expected [{}, 1, {}] or [{}, {}, 1]",
           source_.path(), name, fmt::join(shape, ", "), delta->conv_dim(), width,
           delta->conv_dim(), width);
    }
    return mean_of(trunk_ + "layers.0.input_layernorm.weight", config_.d_model) >= 0.5f;
  }

  float mean_of(const std::string& name, int size) const {
    const std::vector<float> values = read_vector(source_, find_vector(source_, name, size));
    return std::accumulate(values.begin(), values.end(), 0.0f) / static_cast<float>(size);
  }

  bool tied() const {
    const JsonFields top(source_.config(), source_.config_origin());
    return text_config(source_).boolean_or("tie_word_embeddings",
                                           top.boolean_or("tie_word_embeddings", false));
  }

  // A norm this family applies as (1 + w).
  StoredVector norm(const std::string& name, int size) const {
    StoredVector vector = find_vector(source_, name, size);
    vector.shift = norms_are_shifted_ ? 0.0f : 1.0f;
    return vector;
  }

  // Converters disagree on which norms of the MTP head they shift, so each tensor speaks for
  // itself.
  StoredVector mtp_norm(const std::string& name, int size) const {
    StoredVector vector = norm(name, size);
    if (norms_are_shifted_ && mean_of(name, size) < 0.5f) vector.shift = 1.0f;
    return vector;
  }

  GatedAttentionTensors<Stored> attention(const std::string& p, const GatedAttentionSpec& s) const {
    const std::int64_t d = config_.d_model;
    const std::int64_t q_dim = std::int64_t{s.n_heads} * s.d_head;
    const std::int64_t kv_dim = std::int64_t{s.n_kv_heads} * s.d_head;
    return {
        .q = find_matrix(source_, p + "q_proj", 2 * q_dim, d),
        .k = find_matrix(source_, p + "k_proj", kv_dim, d),
        .v = find_matrix(source_, p + "v_proj", kv_dim, d),
        .o = find_matrix(source_, p + "o_proj", d, q_dim),
        .q_norm = norm(p + "q_norm.weight", s.d_head),
        .k_norm = norm(p + "k_norm.weight", s.d_head),
    };
  }

  GatedDeltaTensors<Stored> delta(const std::string& p, const GatedDeltaSpec& s) const {
    const std::int64_t d = config_.d_model;
    return {
        .qkv = find_matrix(source_, p + "in_proj_qkv", s.conv_dim(), d),
        .z = find_matrix(source_, p + "in_proj_z", s.value_dim(), d),
        .b = find_matrix(source_, p + "in_proj_b", s.n_value_heads, d),
        .a = find_matrix(source_, p + "in_proj_a", s.n_value_heads, d),
        .out = find_matrix(source_, p + "out_proj", d, s.value_dim()),
        // [C, 1, K] and [C, K, 1] hold the same bytes.
        .conv = find_transposed(source_, p + "conv1d", s.conv_dim(), s.conv_width),
        .a_log = find_vector(source_, p + "A_log", s.n_value_heads),
        .dt_bias = find_vector(source_, p + "dt_bias", s.n_value_heads),
        .norm = find_vector(source_, p + "norm.weight", s.d_value),
    };
  }

  MoeTensors<Stored> moe(const std::string& p, const MoeSpec& s,
                         std::vector<ExpertBank>& banks) const {
    const int d = config_.d_model;
    banks.push_back(find_experts(source_, p, s, d));
    return {
        .router = find_matrix(source_, p + "gate", s.n_experts, d),
        .correction_bias = {},
        .shared = find_ffn(source_, p + "shared_expert.", s.d_shared, d),
        .shared_gate = find_matrix(source_, p + "shared_expert_gate", 1, d),
        .bank = static_cast<int>(banks.size()) - 1,
    };
  }

  LayerTensors<Stored> layer(const std::string& p, const LayerSpec& spec,
                             std::vector<ExpertBank>& banks) const {
    LayerTensors<Stored> tensors;
    tensors.mixer_norm = norm(p + "input_layernorm.weight", config_.d_model);
    tensors.ffn_norm = norm(p + "post_attention_layernorm.weight", config_.d_model);
    if (const auto* a = std::get_if<GatedAttentionSpec>(&spec.mixer)) {
      tensors.mixer = attention(p + "self_attn.", *a);
    } else {
      tensors.mixer = delta(p + "linear_attn.", std::get<GatedDeltaSpec>(spec.mixer));
    }
    if (const auto* m = std::get_if<MoeSpec>(&spec.ffn)) {
      tensors.ffn = moe(p + "mlp.", *m, banks);
    } else {
      tensors.ffn =
          find_ffn(source_, p + "mlp.", std::get<DenseFfnSpec>(spec.ffn).d_ff, config_.d_model);
    }
    return tensors;
  }

  MtpTensors<Stored> mtp(std::vector<ExpertBank>& banks) const {
    const std::string p = mtp_prefix(source_);
    const std::string l = p + "layers.0.";
    const int d = config_.d_model;
    MtpTensors<Stored> tensors{
        .embed_norm = mtp_norm(p + "pre_fc_norm_embedding.weight", d),
        .hidden_norm = mtp_norm(p + "pre_fc_norm_hidden.weight", d),
        .fc = find_matrix(source_, p + "fc", d, 2 * d),
        .layer = layer(l, *config_.mtp, banks),
        .final_norm = mtp_norm(p + "norm.weight", d),
    };
    auto& attention = std::get<GatedAttentionTensors<Stored>>(tensors.layer.mixer);
    const int d_head = std::get<GatedAttentionSpec>(config_.mtp->mixer).d_head;
    tensors.layer.mixer_norm = mtp_norm(l + "input_layernorm.weight", d);
    tensors.layer.ffn_norm = mtp_norm(l + "post_attention_layernorm.weight", d);
    attention.q_norm = mtp_norm(l + "self_attn.q_norm.weight", d_head);
    attention.k_norm = mtp_norm(l + "self_attn.k_norm.weight", d_head);
    return tensors;
  }

  const ModelSource& source_;
  const ModelConfig& config_;
  std::string trunk_;       // prefix of the decoder's tensors
  bool norms_are_shifted_;  // stored norm weights already contain the +1
};

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  return IndexReader(source, config).read();
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
