#include "families/deepseek_v3/deepseek_v3.h"

#include <array>
#include <cmath>

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
  const int d_qk = mla.d_query();
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

  ModelConfig config = read_sizes(text, kDeepseekV3.name);
  const int n_layers = read_layer_count(text);
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

ModelIndex read_index(const ModelSource& source, const ModelConfig& config) {
  TensorNames names;
  names.trunk = trunk_prefix(source);
  names.shared = "shared_experts.";
  // The layer's own copies of embedding and head duplicate the trunk's and are not read.
  names.mtp = {.prefix = mtp_prefix(source, config.n_layers()),
               .embed_norm = "enorm",
               .hidden_norm = "hnorm",
               .fc = "eh_proj",
               .layer = "",
               .final_norm = "shared_head.norm"};
  const bool tied = text_config(source).boolean_or("tie_word_embeddings", false);
  return IndexReader(source, config, names).read(tied);
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
