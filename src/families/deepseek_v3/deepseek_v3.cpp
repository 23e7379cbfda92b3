#include "families/deepseek_v3/deepseek_v3.h"

#include <array>
#include <cmath>

#include "base/error.h"
#include "families/common.h"
#include "families/config_keys.h"
#include "families/rope_fields.h"
#include "source/tensor_lookup.h"

namespace moeflux {
namespace {

constexpr std::int64_t kMaxSize = 1 << 24;

int size_field(const JsonFields& fields, std::string_view key) {
  return static_cast<int>(fields.integer(key, 1, kMaxSize));
}

// ---- config
// -------------------------------------------------------------------------------------------------

MlaSpec read_mla(const JsonFields& text) {
  const RopeFields rope(text);
  MlaSpec mla{
      .n_heads = size_field(text, "num_attention_heads"),
      .q_rank = static_cast<int>(text.integer_or("q_lora_rank", 0, 1, kMaxSize)),
      .kv_rank = size_field(text, "kv_lora_rank"),
      .d_nope = size_field(text, "qk_nope_head_dim"),
      .d_rope = size_field(text, "qk_rope_head_dim"),
      .d_value = size_field(text, "v_head_dim"),
      .rope =
          rope.make(size_field(text, "qk_rope_head_dim"), text.boolean_or("rope_interleave", true)),
      .scale = 0,
      .latent_norm_eps = 1e-6f,  // fixed in the reference, whatever rms_norm_eps is
  };
  const int d_qk = mla.d_nope + mla.d_rope;
  require_integer(text, "num_key_value_heads", {mla.n_heads});
  require_integer(text, "qk_head_dim", {d_qk});
  require_integer(text, "head_dim", {mla.d_rope, d_qk});  // exporters differ in what they mean
  if (rope.number("partial_rotary_factor").value_or(1) != 1) {
    fail(Errc::Unsupported, "{}: \"partial_rotary_factor\" other than 1 is not supported",
         text.origin());
  }
  mla.scale = static_cast<float>(rope.softmax_factor() / std::sqrt(static_cast<double>(d_qk)));
  return mla;
}

MoeSpec read_moe(const JsonFields& text) {
  const auto n_shared = text.integer_or("n_shared_experts", 0, 0, 1 << 12);
  const int d_expert = size_field(text, "moe_intermediate_size");
  return {
      .n_experts = size_field(text, "n_routed_experts"),
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
      .d_shared = static_cast<int>(
          n_shared * std::int64_t{d_expert} > kMaxSize ? kMaxSize + 1 : n_shared * d_expert),
      .shared_is_gated = false,
  };
}

std::string trunk_prefix(const ModelSource& source) {
  return find_prefix(source, {"model.", "language_model.model.", "model.language_model."},
                     "embed_tokens.weight");
}

// The MTP layer follows the trunk's layers. Many checkpoints announce it in the config and leave
// its tensors out.
std::string mtp_prefix(const ModelSource& source, int n_layers) {
  const std::string prefix = fmt::format("{}layers.{}.", trunk_prefix(source), n_layers);
  return has_module(source, prefix + "eh_proj") ? prefix : std::string();
}

// Of those that refuse_unread_keys asks about.
constexpr std::array<std::string_view, 10> kKeysRead{
    "num_attention_heads", "num_key_value_heads",  "head_dim",   "qk_head_dim",
    "qk_nope_head_dim",    "qk_rope_head_dim",     "v_head_dim", "kv_lora_rank",
    "rope_interleave",     "routed_scaling_factor"};

ModelConfig read_config(const ModelSource& source) {
  const JsonFields text = text_config(source);
  require_one_of(text, "hidden_act", {"silu"});
  require_one_of(text, "scoring_func", {"sigmoid"});
  require_one_of(text, "topk_method", {"noaux_tc"});
  refuse_unread_keys(source, kKeysRead);

  ModelConfig config{
      .family = std::string(kDeepseekV3.name),
      .d_model = size_field(text, "hidden_size"),
      .n_vocab = size_field(text, "vocab_size"),
      .context_length = static_cast<int>(text.integer("max_position_embeddings", 1, 1 << 28)),
      .norm_eps = static_cast<float>(text.number_or("rms_norm_eps", 1e-6)),
      .layers = {},
      .mtp = {},
  };
  const int n_layers = static_cast<int>(text.integer("num_hidden_layers", 1, 4096));
  const int n_dense = static_cast<int>(text.integer_or("first_k_dense_replace", 0, 0, n_layers));
  const auto moe_every = text.integer_or("moe_layer_freq", 1, 1, 4096);
  const MlaSpec mla = read_mla(text);
  const MoeSpec moe = read_moe(text);
  for (int i = 0; i < n_layers; ++i) {
    const bool is_moe = i >= n_dense && i % moe_every == 0;
    config.layers.push_back(
        {mla, is_moe ? FfnSpec(moe)
                     : FfnSpec(DenseFfnSpec{.d_ff = size_field(text, "intermediate_size")})});
  }
  if (!mtp_prefix(source, n_layers).empty()) config.mtp = LayerSpec{mla, moe};
  return config;
}

// ---- tensors
// ------------------------------------------------------------------------------------------------

// A stack of equal matrices that lie one after the other, as one tall matrix.
StoredMatrix find_tall_matrix(const ModelSource& source, const std::string& module, int count,
                              std::int64_t rows, std::int64_t cols) {
  StoredMatrix matrix = find_stacked_matrices(source, module, count, rows, cols).at(0);
  if (matrix.format.kind == WeightKind::Fp8Block && rows % matrix.format.block != 0) {
    // The scales of each begin with a block of their own; in a tall matrix blocks would go across.
    fail(Errc::Unsupported,
         "{}: tensor \"{}\" is FP8 with {} rows, which blocks of {} do not divide", source.path(),
         matrix.name, rows, matrix.format.block);
  }
  matrix.rows *= count;
  for (Extent* plane : {&matrix.data, &matrix.scales, &matrix.biases}) {
    plane->bytes *= static_cast<std::uint64_t>(count);
  }
  return matrix;
}

class IndexReader {
 public:
  IndexReader(const ModelSource& source, const ModelConfig& config)
      : source_(source), config_(config), trunk_(trunk_prefix(source)) {}

  ModelIndex read() {
    ModelIndex index;
    const int d = config_.d_model;
    index.tensors.embed = find_matrix(source_, trunk_ + "embed_tokens", config_.n_vocab, d);
    index.tensors.final_norm = find_vector(source_, trunk_ + "norm.weight", d);
    if (!text_config(source_).boolean_or("tie_word_embeddings", false)) {
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
  MlaTensors<Stored> mla(const std::string& p, const MlaSpec& s) const {
    const std::int64_t d = config_.d_model;
    const std::int64_t q_dim = std::int64_t{s.n_heads} * (s.d_nope + s.d_rope);
    MlaTensors<Stored> t;
    if (s.q_rank > 0) {
      t.q_a = find_matrix(source_, p + "q_a_proj", s.q_rank, d);
      t.q_a_norm = find_vector(source_, p + "q_a_layernorm.weight", s.q_rank);
      t.q = find_matrix(source_, p + "q_b_proj", q_dim, s.q_rank);
    } else {
      t.q = find_matrix(source_, p + "q_proj", q_dim, d);
    }
    t.kv_a = find_matrix(source_, p + "kv_a_proj_with_mqa", s.kv_rank + s.d_rope, d);
    t.kv_a_norm = find_vector(source_, p + "kv_a_layernorm.weight", s.kv_rank);
    if (has_module(source_, p + "embed_q")) {
      t.embed_q = find_tall_matrix(source_, p + "embed_q", s.n_heads, s.kv_rank, s.d_nope);
      t.unembed = find_tall_matrix(source_, p + "unembed_out", s.n_heads, s.d_value, s.kv_rank);
    } else {
      t.kv_b = find_matrix(source_, p + "kv_b_proj",
                           std::int64_t{s.n_heads} * (s.d_nope + s.d_value), s.kv_rank);
    }
    t.o = find_matrix(source_, p + "o_proj", d, std::int64_t{s.n_heads} * s.d_value);
    return t;
  }

  MoeTensors<Stored> moe(const std::string& p, const MoeSpec& s,
                         std::vector<ExpertBank>& banks) const {
    const int d = config_.d_model;
    banks.push_back(find_experts(source_, p, s, d));
    MoeTensors<Stored> t;
    t.router = find_matrix(source_, p + "gate", s.n_experts, d);
    t.correction_bias = find_vector(source_, p + "gate.e_score_correction_bias", s.n_experts);
    if (s.d_shared > 0) t.shared = find_ffn(source_, p + "shared_experts.", s.d_shared, d);
    t.bank = static_cast<int>(banks.size()) - 1;
    return t;
  }

  LayerTensors<Stored> layer(const std::string& p, const LayerSpec& spec,
                             std::vector<ExpertBank>& banks) const {
    LayerTensors<Stored> t;
    t.mixer_norm = find_vector(source_, p + "input_layernorm.weight", config_.d_model);
    t.ffn_norm = find_vector(source_, p + "post_attention_layernorm.weight", config_.d_model);
    t.mixer = mla(p + "self_attn.", std::get<MlaSpec>(spec.mixer));
    if (const auto* m = std::get_if<MoeSpec>(&spec.ffn)) {
      t.ffn = moe(p + "mlp.", *m, banks);
    } else {
      t.ffn = find_ffn(source_, p + "mlp.", std::get<DenseFfnSpec>(spec.ffn).d_ff, config_.d_model);
    }
    return t;
  }

  // The layer's own copies of embedding and head duplicate the trunk's and are not read.
  MtpTensors<Stored> mtp(std::vector<ExpertBank>& banks) const {
    const std::string p = mtp_prefix(source_, config_.n_layers());
    const int d = config_.d_model;
    return {
        .embed_norm = find_vector(source_, p + "enorm.weight", d),
        .hidden_norm = find_vector(source_, p + "hnorm.weight", d),
        .fc = find_matrix(source_, p + "eh_proj", d, 2 * d),
        .layer = layer(p, *config_.mtp, banks),
        .final_norm = find_vector(source_, p + "shared_head.norm.weight", d),
    };
  }

  const ModelSource& source_;
  const ModelConfig& config_;
  std::string trunk_;
};

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  return IndexReader(source, config).read();
}

constexpr std::array<std::string_view, 3> kModelTypes{"deepseek_v3", "kimi_k2", "kimi_k25"};
// DeepSeek's own end of sentence (with its full-width bars), and the turn end of chats in the
// ChatML manner.
constexpr std::array<std::string_view, 3> kEndTokens{
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
    "<|im_end|>", "[EOS]"};

}  // namespace

constexpr Family kDeepseekV3{
    .name = "deepseek_v3",
    .model_types = kModelTypes,
    .read_config = read_config,
    .read_index = read_index,
    .end_tokens = kEndTokens,
};

}  // namespace moeflux
