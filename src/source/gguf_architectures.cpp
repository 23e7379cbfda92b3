// The list of architectures. What is not said here is said in gguf_architecture.cpp for all.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "source/gguf_architecture.h"

namespace moeflux {
namespace {

enum Gating { kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3 };

void require_gating(const GgufFields& fields, Gating wanted) {
  fields.require("expert_gating_func", wanted);
}

// Heads of grouped-query attention, their biases and their rotation.
void add_heads(const GgufFields& fields, Json& config) {
  const int n_heads = config["num_attention_heads"].get<int>();
  const int d_head = config["head_dim"].get<int>();
  config["num_key_value_heads"] = fields.has("attention.head_count_kv")
                                      ? fields.size_of_layers("attention.head_count_kv")
                                      : n_heads;
  fields.require("attention.value_length", d_head);
  config["attention_bias"] =
      fields.layers_have("attn_q.bias") || fields.layers_have("attn_qkv.bias");
  add_rope(fields, config, d_head);
}

// Of families that rotate whole heads.
void add_whole_heads(const GgufFields& fields, Json& config) {
  add_heads(fields, config);
  Json& rope = config["rope_parameters"];
  if (rope["partial_rotary_factor"] != 1.0) {
    fail(Errc::Unsupported,
         "{}: \"{}\": heads that are rotated in part are not supported for this "
         "architecture",
         fields.path(), fields.name("rope.dimension_count"));
  }
  rope.erase("partial_rotary_factor");
}

void require_softmax_router(const GgufFields& fields) {
  require_gating(fields, kSoftmax);
  if (fields.has("expert_weights_scale") && fields.number("expert_weights_scale") != 0)
    fields.require("expert_weights_scale", 1);
}

// ---- Qwen
// -------------------------------------------------------------------------------------------------

void describe_qwen3(const GgufFields& fields, Json& config) {
  config["model_type"] = "qwen3";
  add_whole_heads(fields, config);
}

void describe_qwen3moe(const GgufFields& fields, Json& config) {
  config["model_type"] = "qwen3_moe";
  add_whole_heads(fields, config);
  add_experts(fields, config);
  require_softmax_router(fields);
  config["norm_topk_prob"] = fields.boolean_or("expert_weights_norm", true);
}

// Layers of the gated delta rule among those of attention.
void add_delta(const GgufFields& fields, Json& config) {
  const int n_value_heads = fields.size("ssm.time_step_rank");
  config["linear_num_key_heads"] = fields.size("ssm.group_count");
  config["linear_num_value_heads"] = n_value_heads;
  config["linear_key_head_dim"] = fields.size("ssm.state_size");
  config["linear_value_head_dim"] = fields.size("ssm.inner_size") / n_value_heads;
  config["linear_conv_kernel_dim"] = fields.size("ssm.conv_kernel");
  // Which layers are which their tensors tell; the converter does not write every order of them.
  fields.ignore("full_attention_interval");
  fields.ignore("attention.recurrent_layers");
  Json& types = config["layer_types"] = Json::array();
  for (int i = 0; i < fields.n_layers(); ++i) {
    const bool is_linear = fields.is_delta(i);
    types.push_back(is_linear ? "linear_attention" : "full_attention");
  }
  add_heads(fields, config);
  config.erase("attention_bias");
  config["norms_include_one"] = true;
}

void add_shared_expert(const GgufFields& fields, Json& config) {
  config["shared_expert_intermediate_size"] =
      fields.has("expert_shared_feed_forward_length")
          ? Json(fields.size_of_layers("expert_shared_feed_forward_length"))
          : config["intermediate_size"];
}

void describe_qwen35(const GgufFields& fields, Json& config) {
  config["model_type"] = "qwen3_5_text";
  add_delta(fields, config);
  config["linear_value_heads_alternate"] = true;
}

void describe_qwen35moe(const GgufFields& fields, Json& config) {
  config["model_type"] = "qwen3_5_moe_text";
  add_delta(fields, config);
  config["linear_value_heads_alternate"] = true;
  add_experts(fields, config);
  add_shared_expert(fields, config);
  require_softmax_router(fields);
}

void describe_qwen3next(const GgufFields& fields, Json& config) {
  config["model_type"] = "qwen3_next";
  add_delta(fields, config);
  add_experts(fields, config);
  add_shared_expert(fields, config);
  require_softmax_router(fields);
  config["norm_topk_prob"] = fields.boolean_or("expert_weights_norm", true);
}

// Of a layer of the delta rule; attention's own names are the usual ones.
constexpr std::array<GgufName, 11> kHybridNames{{
    {"post_attention_norm", "post_attention_layernorm"},
    {"attn_gate", "linear_attn.in_proj_z"},
    {"ssm_in", "linear_attn.in_proj_qkvz"},
    {"ssm_ba", "linear_attn.in_proj_ba"},
    {"ssm_alpha", "linear_attn.in_proj_a"},
    {"ssm_beta", "linear_attn.in_proj_b"},
    {"ssm_conv1d", "linear_attn.conv1d"},
    {"ssm_a", "linear_attn.decay", /*is_tensor=*/true},
    {"ssm_dt.bias", "linear_attn.dt_bias"},
    {"ssm_norm", "linear_attn.norm"},
    {"ssm_out", "linear_attn.out_proj"},
}};

// ---- DeepSeek, GLM
// -------------------------------------------------------------------------------------------------

// Since llama.cpp absorbs the latent, key_length and value_length are those of the cache.
void describe_deepseek2(const GgufFields& fields, Json& config) {
  config["model_type"] = "deepseek_v3";
  const bool is_absorbed = fields.has("attention.key_length_mla");
  const int d_qk = fields.size(is_absorbed ? "attention.key_length_mla" : "attention.key_length");
  const int d_rope = fields.size("rope.dimension_count");
  if (d_rope >= d_qk) {
    fail(Errc::BadInput, "{}: {} of {} dimensions of a head are rotated", fields.path(), d_rope,
         d_qk);
  }
  config.erase("head_dim");
  config["qk_rope_head_dim"] = d_rope;
  config["qk_nope_head_dim"] = d_qk - d_rope;
  config["v_head_dim"] =
      fields.size(is_absorbed ? "attention.value_length_mla" : "attention.value_length");
  config["kv_lora_rank"] = fields.size("attention.kv_lora_rank");
  if (fields.has("attention.q_lora_rank"))
    config["q_lora_rank"] = fields.size("attention.q_lora_rank");
  fields.ignore("attention.head_count_kv");  // 1 of the latent, or that of the heads
  fields.ignore("attention.key_length");
  fields.ignore("attention.value_length");
  fields.require("attention.temperature_scale", 0);

  add_rope(fields, config, d_rope);
  Json& rope = config["rope_parameters"];
  rope.erase("partial_rotary_factor");
  if (fields.has("rope.scaling.yarn_log_multiplier") && rope["rope_type"] == "yarn") {
    // A tenth of it is in the file, rounded to a float.
    const double tenth = fields.number("rope.scaling.yarn_log_multiplier");
    rope["mscale"] = rope["mscale_all_dim"] = std::round(tenth * 1e6) / 1e5;
  }

  add_grouped_router(fields, config);
  const bool is_v3 = config["num_hidden_layers"] == 61 && config["n_routed_experts"] == 256;
  if (is_v3 && !fields.has("expert_group_count")) {  // early files of V3 and R1 leave groups out
    config["n_group"] = 8;
    config["topk_group"] = 4;
  }
  // GLM-4.7-Flash without the key is not DeepSeek-V2.
  const bool is_glm = config["vocab_size"] == 154880 && config["num_hidden_layers"] == 47;
  const int gating = fields.count_or("expert_gating_func", is_glm ? kSigmoid : kSoftmax);
  config["scoring_func"] = gating == kSigmoid ? "sigmoid" : "softmax";
  if (gating != kSigmoid && gating != kSoftmax) require_gating(fields, kSigmoid);
}

constexpr std::array<GgufName, 12> kLatentNames{{
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_k_b", "self_attn.embed_q"},
    {"attn_v_b", "self_attn.unembed_out"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
    {"exp_probs_b.weight", "mlp.gate.e_score_correction_bias"},
}};

void describe_glm4moe(const GgufFields& fields, Json& config) {
  config["model_type"] = "glm4_moe";
  add_heads(fields, config);
  add_grouped_router(fields, config);
  require_gating(fields, kSigmoid);
  config["use_qk_norm"] = fields.layers_have("attn_q_norm.weight");
}

constexpr std::array<GgufName, 4> kGlmMoeNames{{
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
}};

void describe_glm4(const GgufFields& fields, Json& config) {
  config["model_type"] = "glm4";
  add_heads(fields, config);
}

constexpr std::array<GgufName, 4> kGlm4Names{{
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
}};

// ---- others
// -------------------------------------------------------------------------------------------------

void describe_gpt_oss(const GgufFields& fields, Json& config) {
  config["model_type"] = "gpt_oss";
  add_whole_heads(fields, config);
  add_experts(fields, config);
  config["num_local_experts"] = config["num_experts"];
  config["intermediate_size"] = config["moe_intermediate_size"];
  config.erase("num_experts");
  config.erase("moe_intermediate_size");
  fields.require("expert_weights_scale", 1);
  fields.require("expert_gating_func", kSoftmaxOfChosen);
  // The released models do not round the ramp of YaRN; llama.cpp always does.
  Json& rope = config["rope_parameters"];
  if (rope["rope_type"] == "yarn") rope["truncate"] = false;
  const int window = fields.size("attention.sliding_window");
  config["sliding_window"] = window;
  std::vector<std::int64_t> pattern;
  if (fields.has("attention.sliding_window_pattern"))
    pattern = fields.by_layer("attention.sliding_window_pattern");
  Json& types = config["layer_types"] = Json::array();
  for (int i = 0; i < fields.n_layers(); ++i) {
    const bool slides = pattern.empty() ? i % 2 == 0 : pattern[static_cast<std::size_t>(i)] != 0;
    types.push_back(slides ? "sliding_attention" : "full_attention");
  }
}

constexpr std::array<GgufName, 3> kGptOssNames{{
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "mlp.router"},
    {"attn_sinks.weight", "self_attn.sinks"},
}};

void describe_minimax_m2(const GgufFields& fields, Json& config) {
  config["model_type"] = "minimax_m2";
  config["rotary_dim"] = fields.size("rope.dimension_count");
  add_heads(fields, config);
  config["rope_parameters"].erase("partial_rotary_factor");
  config.erase("attention_bias");
  add_experts(fields, config);
  config["intermediate_size"] = config["moe_intermediate_size"];
  config.erase("moe_intermediate_size");
  require_gating(fields, kSigmoid);
  if (fields.number_or("expert_weights_scale", 0) != 0) fields.require("expert_weights_scale", 1);
  if (!fields.boolean_or("expert_weights_norm", true)) fields.require("expert_weights_norm", 1);
}

constexpr std::array<GgufName, 1> kMinimaxNames{{
    {"exp_probs_b.bias", "mlp.e_score_correction_bias"},
}};

void describe_olmoe(const GgufFields& fields, Json& config) {
  config["model_type"] = "olmoe";
  add_whole_heads(fields, config);
  add_experts(fields, config);
  config["intermediate_size"] = config["moe_intermediate_size"];
  config.erase("moe_intermediate_size");
  require_softmax_router(fields);
  config["norm_topk_prob"] = fields.boolean_or("expert_weights_norm", false);
  if (fields.has("attention.clamp_kqv")) config["clip_qkv"] = fields.number("attention.clamp_kqv");
}

// Kinds of layers whose heads have sizes of their own.
void describe_gemma4(const GgufFields& fields, Json& config) {
  config["model_type"] = "gemma4_text";
  const std::vector<std::int64_t> slides = fields.by_layer("attention.sliding_window_pattern");
  const std::vector<std::int64_t> n_kv_heads = fields.by_layer("attention.head_count_kv");
  Json& types = config["layer_types"] = Json::array();
  std::int64_t n_kv_sliding = 0, n_kv_global = 0;
  bool has_values = true;
  for (std::size_t i = 0; i < slides.size(); ++i) {
    types.push_back(slides[i] != 0 ? "sliding_attention" : "full_attention");
    std::int64_t& n_kv = slides[i] != 0 ? n_kv_sliding : n_kv_global;
    if (n_kv != 0 && n_kv != n_kv_heads[i]) {
      fail(Errc::Unsupported, "{}: \"{}\" differs between layers of one kind", fields.path(),
           fields.name("attention.head_count_kv"));
    }
    n_kv = n_kv_heads[i];
    const bool has_its_own = fields.find_tensor(fmt::format("blk.{}.attn_v.weight", i)) != nullptr;
    if (slides[i] == 0) has_values = has_its_own;
  }
  config["global_head_dim"] = config["head_dim"];
  config["head_dim"] = fields.size("attention.key_length_swa");
  fields.require("attention.value_length", config["global_head_dim"].get<int>());
  fields.require("attention.value_length_swa", config["head_dim"].get<int>());
  config["num_key_value_heads"] = n_kv_sliding == 0 ? n_kv_global : n_kv_sliding;
  config["attention_k_eq_v"] = !has_values;
  if (n_kv_global != 0 && n_kv_global != config["num_key_value_heads"]) {
    if (has_values) {
      fail(Errc::Unsupported,
           "{}: \"{}\": heads of global layers of their own number are not supported "
           "beside values of their own",
           fields.path(), fields.name("attention.head_count_kv"));
    }
    config["num_global_key_value_heads"] = n_kv_global;
  }
  config["sliding_window"] = fields.size("attention.sliding_window");
  config["hidden_size_per_layer_input"] = fields.count_or("embedding_length_per_layer_input", 0);
  config["num_kv_shared_layers"] = fields.count_or("attention.shared_kv_layers", 0);
  if (fields.has("final_logit_softcapping"))
    config["final_logit_softcapping"] = fields.number("final_logit_softcapping");

  // Of a global head the rest stands still: those of its frequencies are divided by 1e30.
  constexpr float kStill = 1e29f;
  double share = 1;
  if (fields.find_tensor("rope_freqs.weight") != nullptr) {
    const std::vector<float> factors = fields.read_floats("rope_freqs.weight");
    const auto n_moving = std::count(factors.begin(), factors.end(), 1.0f);
    const auto n_still = std::count_if(factors.begin(), factors.end(),
                                       [&](float factor) { return factor > kStill; });
    if (static_cast<std::size_t>(n_moving + n_still) != factors.size()) {
      fail(Errc::Unsupported,
           "{}: tensor \"rope_freqs.weight\": factors other than 1 and 1e30 are "
           "not supported for this architecture",
           fields.path());
    }
    share = static_cast<double>(n_moving) / static_cast<double>(factors.size());
  }
  fields.require("rope.dimension_count", config["global_head_dim"].get<int>());
  fields.require("rope.dimension_count_swa", config["head_dim"].get<int>());
  config["rope_parameters"] = {
      {"sliding_attention",
       {{"rope_type", "default"}, {"rope_theta", fields.number_or("rope.freq_base_swa", 10000)}}},
      {"full_attention",
       {{"rope_type", "proportional"},
        {"partial_rotary_factor", share},
        {"rope_theta", fields.number_or("rope.freq_base", 10000)}}}};

  if (fields.count_or("expert_count", 0) == 0) return;
  config["enable_moe_block"] = true;
  add_experts(fields, config);
  config["top_k_experts"] = config["num_experts_per_tok"];
  config.erase("num_experts_per_tok");
}

constexpr std::array<GgufName, 14> kGemma4Names{{
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"layer_output_scale.weight", "layer_scalar"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_gate_inp", "router.proj"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
    {"ffn_gate_exps", "experts.gate_proj"},
    {"ffn_up_exps", "experts.up_proj"},
    {"ffn_down_exps", "experts.down_proj"},
    {"ffn_gate_up_exps", "experts.gate_up_proj"},
}};

// The converter turns halves of a head into pairs, which is how llama.cpp rotates this one.
void describe_llama(const GgufFields& fields, Json& config) {
  add_whole_heads(fields, config);
  config["rope_interleave"] = true;
  fields.require("attention.scale", 1 / std::sqrt(config["head_dim"].get<double>()));
  fields.require("logit_scale", 1);
  fields.require("residual_scale", 1);
  fields.require("embedding_scale", 1);
  if (fields.count_or("expert_count", 0) == 0) {
    fields.ignore("expert_used_count");
    config["model_type"] = "llama";
    return;
  }
  config["model_type"] = "mixtral";
  if (config["attention_bias"] == true) {
    fail(Errc::Unsupported,
         "{}: biases of the attention are not supported for models of this "
         "architecture with experts",
         fields.path());
  }
  config.erase("attention_bias");
  add_experts(fields, config);
  config["num_local_experts"] = config["num_experts"];
  config.erase("num_experts");
  config["intermediate_size"] = config["moe_intermediate_size"];
  config.erase("moe_intermediate_size");
  require_softmax_router(fields);
}

constexpr std::array<GgufArchitecture, 13> kArchitectures{{
    {"qwen35moe", kHybridNames, GgufMtp::Qwen, describe_qwen35moe},
    {"qwen35", kHybridNames, GgufMtp::Qwen, describe_qwen35},
    {"qwen3next", kHybridNames, GgufMtp::Qwen, describe_qwen3next},
    {"qwen3moe", {}, GgufMtp::None, describe_qwen3moe},
    {"qwen3", {}, GgufMtp::None, describe_qwen3},
    {"deepseek2", kLatentNames, GgufMtp::OwnLayer, describe_deepseek2},
    {"glm4moe", kGlmMoeNames, GgufMtp::OwnLayer, describe_glm4moe},
    {"glm4", kGlm4Names, GgufMtp::None, describe_glm4},
    {"gpt-oss", kGptOssNames, GgufMtp::None, describe_gpt_oss},
    {"minimax-m2", kMinimaxNames, GgufMtp::None, describe_minimax_m2},
    {"olmoe", {}, GgufMtp::None, describe_olmoe},
    {"llama", {}, GgufMtp::None, describe_llama},
    {"gemma4", kGemma4Names, GgufMtp::None, describe_gemma4},
}};

}  // namespace

std::span<const GgufArchitecture> gguf_architectures() {
  return kArchitectures;
}

}  // namespace moeflux
