#include "convert/synth/synth_shape.h"

#include <algorithm>
#include <variant>

#include "base/error.h"

namespace moeflux {
namespace {

// What differs between models of the Qwen3.5 family. Those who have the same number have it here.
struct QwenSizes {
  int d_model, n_heads, d_head = 256, n_kv_heads = 2;
  int n_key_heads = 16, n_value_heads, d_linear_head = 128;
  int n_experts, top_k = 8, d_expert, n_vocab = 248320, context_length = 262144;
  int router_bits = 8;
  DType a_log = DType::BF16;
};

Json layer_types(int n_layers) {
  Json types = Json::array();
  for (int i = 0; i < n_layers; ++i) {
    types.push_back((i + 1) % 4 == 0 ? "full_attention" : "linear_attention");
  }
  return types;
}

Json qwen_text_config(const QwenSizes& s, int n_layers) {
  return {{"model_type", "qwen3_5_moe_text"},
          {"attention_bias", false},
          {"attn_output_gate", true},
          {"dtype", "bfloat16"},
          {"full_attention_interval", 4},
          {"head_dim", s.d_head},
          {"hidden_act", "silu"},
          {"hidden_size", s.d_model},
          {"layer_types", layer_types(n_layers)},
          {"linear_conv_kernel_dim", 4},
          {"linear_key_head_dim", s.d_linear_head},
          {"linear_num_key_heads", s.n_key_heads},
          {"linear_num_value_heads", s.n_value_heads},
          {"linear_value_head_dim", s.d_linear_head},
          {"mamba_ssm_dtype", "float32"},
          {"max_position_embeddings", s.context_length},
          {"moe_intermediate_size", s.d_expert},
          {"mtp_num_hidden_layers", 1},
          {"mtp_use_dedicated_embeddings", false},
          {"num_attention_heads", s.n_heads},
          {"num_experts", s.n_experts},
          {"num_experts_per_tok", s.top_k},
          {"num_hidden_layers", n_layers},
          {"num_key_value_heads", s.n_kv_heads},
          {"rms_norm_eps", 1e-6},
          {"rope_parameters",
           {{"mrope_interleaved", true},
            {"mrope_section", {11, 11, 10}},
            {"partial_rotary_factor", 0.25},
            {"rope_theta", 10000000},
            {"rope_type", "default"}}},
          {"shared_expert_intermediate_size", s.d_expert},
          {"tie_word_embeddings", false},
          {"vocab_size", s.n_vocab}};
}

SynthShape make_shape(const QwenSizes& sizes, int n_layers) {
  return {.name = {},
          .config = {{"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
                     {"model_type", "qwen3_5_moe"},
                     {"text_config", qwen_text_config(sizes, n_layers)},
                     {"tie_word_embeddings", false}},
          .blocks = {.prefix = "language_model.",
                     .shared = "shared_expert.",
                     .shared_is_gated = true,
                     .has_output_gate = true,
                     .has_mtp = true},
          .router_bits = sizes.router_bits,
          .a_log = sizes.a_log};
}

struct DeepseekSizes {
  const char* model_type = "deepseek_v3";
  int d_model, n_dense = 3, n_heads, q_rank, kv_rank, d_nope, d_rope = 64, d_value;
  int d_ff, n_experts, top_k = 8, n_groups = 8, top_groups = 4, d_expert, n_vocab, context_length;
  double scale = 2.5, rope_theta = 10000;
  int rope_factor = 40, beta_fast = 32;
  bool has_mtp = true;
};

Json deepseek_config(const DeepseekSizes& s, int n_layers) {
  return {{"architectures", {"DeepseekV3ForCausalLM"}},
          {"model_type", s.model_type},
          {"attention_bias", false},
          {"first_k_dense_replace", s.n_dense},
          {"hidden_act", "silu"},
          {"hidden_size", s.d_model},
          {"intermediate_size", s.d_ff},
          {"kv_lora_rank", s.kv_rank},
          {"max_position_embeddings", s.context_length},
          {"moe_intermediate_size", s.d_expert},
          {"moe_layer_freq", 1},
          {"n_group", s.n_groups},
          {"n_routed_experts", s.n_experts},
          {"n_shared_experts", 1},
          {"norm_topk_prob", true},
          {"num_attention_heads", s.n_heads},
          {"num_experts_per_tok", s.top_k},
          {"num_hidden_layers", n_layers},
          {"num_key_value_heads", s.n_heads},
          {"num_nextn_predict_layers", s.has_mtp ? 1 : 0},
          {"q_lora_rank", s.q_rank},
          {"qk_nope_head_dim", s.d_nope},
          {"qk_rope_head_dim", s.d_rope},
          {"rms_norm_eps", 1e-6},
          {"rope_scaling",
           {{"beta_fast", s.beta_fast},
            {"beta_slow", 1},
            {"factor", s.rope_factor},
            {"mscale", 1.0},
            {"mscale_all_dim", 1.0},
            {"original_max_position_embeddings", 4096},
            {"type", "yarn"}}},
          {"rope_theta", s.rope_theta},
          {"routed_scaling_factor", s.scale},
          {"scoring_func", "sigmoid"},
          {"tie_word_embeddings", false},
          {"topk_group", s.top_groups},
          {"topk_method", "noaux_tc"},
          {"torch_dtype", "bfloat16"},
          {"v_head_dim", s.d_value},
          {"vocab_size", s.n_vocab}};
}

SynthShape make_shape(const DeepseekSizes& sizes, int n_layers) {
  return {.name = {},
          .config = deepseek_config(sizes, n_layers),
          .blocks = {.correction_bias = "gate.e_score_correction_bias",
                     .shared = "shared_experts.",
                     .has_mtp = sizes.has_mtp}};
}

// The families of grouped-query attention and a mixture of experts.
struct GqaSizes {
  int d_model, n_heads, n_kv_heads, d_head = 128;
  int n_experts, top_k = 8, d_expert, n_vocab, context_length;
  double rope_theta;
};

Json gqa_config(const char* model_type, const char* architecture, const GqaSizes& s, int n_layers) {
  return {{"architectures", {architecture}},
          {"model_type", model_type},
          {"head_dim", s.d_head},
          {"hidden_act", "silu"},
          {"hidden_size", s.d_model},
          {"max_position_embeddings", s.context_length},
          {"num_attention_heads", s.n_heads},
          {"num_experts_per_tok", s.top_k},
          {"num_hidden_layers", n_layers},
          {"num_key_value_heads", s.n_kv_heads},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", s.rope_theta},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"},
          {"vocab_size", s.n_vocab}};
}

Json merged(Json config, const Json& more) {
  config.update(more);
  return config;
}

struct Qwen3Moe : GqaSizes {};

SynthShape make_shape(const Qwen3Moe& sizes, int n_layers) {
  return {.name = {},
          .config = merged(gqa_config("qwen3_moe", "Qwen3MoeForCausalLM", sizes, n_layers),
                           {{"attention_bias", false},
                            {"decoder_sparse_step", 1},
                            {"mlp_only_layers", Json::array()},
                            {"moe_intermediate_size", sizes.d_expert},
                            {"norm_topk_prob", true},
                            {"num_experts", sizes.n_experts},
                            {"use_sliding_window", false}})};
}

struct Qwen3Next : GqaSizes {
  int n_key_heads = 16, n_value_heads, d_linear_head = 128;
};

SynthShape make_shape(const Qwen3Next& sizes, int n_layers) {
  return {.name = {},
          .config = merged(gqa_config("qwen3_next", "Qwen3NextForCausalLM", sizes, n_layers),
                           {{"attention_bias", false},
                            {"decoder_sparse_step", 1},
                            {"full_attention_interval", 4},
                            {"layer_types", layer_types(n_layers)},
                            {"linear_conv_kernel_dim", 4},
                            {"linear_key_head_dim", sizes.d_linear_head},
                            {"linear_num_key_heads", sizes.n_key_heads},
                            {"linear_num_value_heads", sizes.n_value_heads},
                            {"linear_value_head_dim", sizes.d_linear_head},
                            {"mlp_only_layers", Json::array()},
                            {"moe_intermediate_size", sizes.d_expert},
                            {"norm_topk_prob", true},
                            {"num_experts", sizes.n_experts},
                            {"partial_rotary_factor", 0.25},
                            {"shared_expert_intermediate_size", sizes.d_expert}}),
          .blocks = {.shared = "shared_expert.",
                     .shared_is_gated = true,
                     .has_output_gate = true,
                     .has_grouped_delta = true},
          .router_bits = 8};
}

struct Glm4Moe : GqaSizes {
  int n_dense = 3, d_ff;
};

SynthShape make_shape(const Glm4Moe& sizes, int n_layers) {
  return {.name = {},
          .config = merged(gqa_config("glm4_moe", "Glm4MoeForCausalLM", sizes, n_layers),
                           {{"attention_bias", true},
                            {"first_k_dense_replace", sizes.n_dense},
                            {"intermediate_size", sizes.d_ff},
                            {"moe_intermediate_size", sizes.d_expert},
                            {"n_group", 1},
                            {"n_routed_experts", sizes.n_experts},
                            {"n_shared_experts", 1},
                            {"norm_topk_prob", true},
                            {"partial_rotary_factor", 0.5},
                            {"rms_norm_eps", 1e-5},
                            {"routed_scaling_factor", 2.5},
                            {"topk_group", 1},
                            {"use_qk_norm", true}}),
          .blocks = {.correction_bias = "gate.e_score_correction_bias",
                     .shared = "shared_experts.",
                     .has_bias = true}};
}

struct GptOss : GqaSizes {
  int window = 128;
};

SynthShape make_shape(const GptOss& sizes, int n_layers) {
  Json types = Json::array();
  for (int i = 0; i < n_layers; ++i)
    types.push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
  return {.name = {},
          .config = merged(gqa_config("gpt_oss", "GptOssForCausalLM", sizes, n_layers),
                           {{"attention_bias", true},
                            {"intermediate_size", sizes.d_expert},
                            {"layer_types", types},
                            {"num_local_experts", sizes.n_experts},
                            {"rms_norm_eps", 1e-5},
                            {"rope_scaling",
                             {{"beta_fast", 32.0},
                              {"beta_slow", 1.0},
                              {"factor", 32.0},
                              {"original_max_position_embeddings", 4096},
                              {"rope_type", "yarn"},
                              {"truncate", false}}},
                            {"sliding_window", sizes.window},
                            {"swiglu_limit", 7.0}}),
          .blocks = {.router = "router",
                     .experts = "experts",
                     .qk_norm = QkNorm::None,
                     .has_bias = true,
                     .has_all_biases = true,
                     .has_sinks = true,
                     .has_clamped_swiglu = true,
                     .dense_bits = 16,
                     .has_mxfp4_experts = true}};
}

struct MinimaxM2 : GqaSizes {
  int n_rot = 64;
};

SynthShape make_shape(const MinimaxM2& sizes, int n_layers) {
  return {.name = {},
          .config = merged(gqa_config("minimax_m2", "MiniMaxM2ForCausalLM", sizes, n_layers),
                           {{"intermediate_size", sizes.d_expert},
                            {"num_local_experts", sizes.n_experts},
                            {"qk_norm_type", "per_layer"},
                            {"rotary_dim", sizes.n_rot},
                            {"scoring_func", "sigmoid"},
                            {"shared_intermediate_size", 0},
                            {"use_qk_norm", true},
                            {"use_routing_bias", true}}),
          .blocks = {.mlp = "block_sparse_moe.",
                     .correction_bias = "e_score_correction_bias",
                     .qk_norm = QkNorm::WholeRow}};
}

struct Known {
  const char* name;
  bool listed;
  int depth;
  std::variant<QwenSizes, DeepseekSizes, Qwen3Moe, Qwen3Next, Glm4Moe, GptOss, MinimaxM2> sizes;
};

const Known kKnown[] = {
    {"qwen3.6-35b-a3b", true, 40,
     QwenSizes{
         .d_model = 2048, .n_heads = 16, .n_value_heads = 32, .n_experts = 256, .d_expert = 512}},
    {"qwen3.5-397b-a17b", true, 60,
     QwenSizes{.d_model = 4096,
               .n_heads = 32,
               .n_value_heads = 64,
               .n_experts = 512,
               .top_k = 10,
               .d_expert = 1024,
               .router_bits = 4,
               .a_log = DType::F32}},
    {"cogito-v2-671b", true, 61,
     DeepseekSizes{.d_model = 7168,
                   .n_heads = 128,
                   .q_rank = 1536,
                   .kv_rank = 512,
                   .d_nope = 128,
                   .d_value = 128,
                   .d_ff = 18432,
                   .n_experts = 256,
                   .d_expert = 2048,
                   .n_vocab = 128815,
                   .context_length = 163840}},
    {"kimi-k2", true, 61,
     DeepseekSizes{.model_type = "kimi_k2",
                   .d_model = 7168,
                   .n_dense = 1,
                   .n_heads = 64,
                   .q_rank = 1536,
                   .kv_rank = 512,
                   .d_nope = 128,
                   .d_value = 128,
                   .d_ff = 18432,
                   .n_experts = 384,
                   .n_groups = 1,
                   .top_groups = 1,
                   .d_expert = 2048,
                   .n_vocab = 163840,
                   .context_length = 131072,
                   .scale = 2.827,
                   .rope_theta = 50000,
                   .rope_factor = 32,
                   .beta_fast = 1,
                   .has_mtp = false}},
    {"qwen3-235b-a22b", true, 94,
     Qwen3Moe{{.d_model = 4096,
               .n_heads = 64,
               .n_kv_heads = 4,
               .n_experts = 128,
               .d_expert = 1536,
               .n_vocab = 151936,
               .context_length = 262144,
               .rope_theta = 5e6}}},
    {"qwen3-next-80b-a3b", true, 48,
     Qwen3Next{{.d_model = 2048,
                .n_heads = 16,
                .n_kv_heads = 2,
                .d_head = 256,
                .n_experts = 512,
                .top_k = 10,
                .d_expert = 512,
                .n_vocab = 151936,
                .context_length = 262144,
                .rope_theta = 1e7},
               /*n_key_heads=*/16,
               /*n_value_heads=*/32}},
    {"glm-4.6", true, 92,
     Glm4Moe{{.d_model = 5120,
              .n_heads = 96,
              .n_kv_heads = 8,
              .n_experts = 160,
              .d_expert = 1536,
              .n_vocab = 151552,
              .context_length = 202752,
              .rope_theta = 1e6},
             /*n_dense=*/3,
             /*d_ff=*/12288}},
    {"gpt-oss-120b", true, 36,
     GptOss{{.d_model = 2880,
             .n_heads = 64,
             .n_kv_heads = 8,
             .d_head = 64,
             .n_experts = 128,
             .top_k = 4,
             .d_expert = 2880,
             .n_vocab = 201088,
             .context_length = 131072,
             .rope_theta = 150000}}},
    {"minimax-m2", true, 62,
     MinimaxM2{{.d_model = 3072,
                .n_heads = 48,
                .n_kv_heads = 8,
                .n_experts = 256,
                .d_expert = 1536,
                .n_vocab = 200064,
                .context_length = 196608,
                .rope_theta = 5e6}}},
    // As deep as the large ones, so that tests see what depth does.
    {"tiny-qwen", false, 40,
     QwenSizes{.d_model = 256,
               .n_heads = 4,
               .d_head = 64,
               .n_key_heads = 4,
               .n_value_heads = 8,
               .d_linear_head = 64,
               .n_experts = 64,
               .d_expert = 64,
               .n_vocab = 1088,
               .context_length = 8192}},
    {"tiny-deepseek", false, 61,
     DeepseekSizes{.d_model = 256,
                   .n_heads = 4,
                   .q_rank = 192,
                   .kv_rank = 128,
                   .d_nope = 64,
                   .d_value = 64,
                   .d_ff = 256,
                   .n_experts = 64,
                   .d_expert = 64,
                   .n_vocab = 1088,
                   .context_length = 8192}},
    {"tiny-qwen3-moe", false, 94,
     Qwen3Moe{{.d_model = 256,
               .n_heads = 4,
               .n_kv_heads = 2,
               .d_head = 64,
               .n_experts = 64,
               .d_expert = 64,
               .n_vocab = 1088,
               .context_length = 8192,
               .rope_theta = 1e6}}},
    {"tiny-qwen3-next", false, 48,
     Qwen3Next{{.d_model = 256,
                .n_heads = 4,
                .n_kv_heads = 2,
                .d_head = 64,
                .n_experts = 64,
                .d_expert = 64,
                .n_vocab = 1088,
                .context_length = 8192,
                .rope_theta = 1e7},
               /*n_key_heads=*/4,
               /*n_value_heads=*/8,
               /*d_linear_head=*/64}},
    {"tiny-glm", false, 92,
     Glm4Moe{{.d_model = 256,
              .n_heads = 8,
              .n_kv_heads = 2,
              .d_head = 64,
              .n_experts = 64,
              .d_expert = 64,
              .n_vocab = 1088,
              .context_length = 8192,
              .rope_theta = 1e6},
             /*n_dense=*/3,
             /*d_ff=*/256}},
    {"tiny-gpt-oss", false, 36,
     GptOss{{.d_model = 320,
             .n_heads = 8,
             .n_kv_heads = 2,
             .d_head = 64,
             .n_experts = 64,
             .top_k = 4,
             .d_expert = 96,
             .n_vocab = 1088,
             .context_length = 8192,
             .rope_theta = 150000},
            /*window=*/16}},
    {"tiny-minimax", false, 62,
     MinimaxM2{{.d_model = 256,
                .n_heads = 6,
                .n_kv_heads = 2,
                .d_head = 64,
                .n_experts = 64,
                .d_expert = 64,
                .n_vocab = 1088,
                .context_length = 8192,
                .rope_theta = 5e6},
               /*n_rot=*/32}},
};

}  // namespace

std::vector<std::string> synth_shape_names() {
  std::vector<std::string> names;
  for (const Known& known : kKnown) {
    if (known.listed) names.emplace_back(known.name);
  }
  return names;
}

SynthShape synth_shape(std::string_view name, const SynthSize& size) {
  const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                   [&](const Known& k) { return k.name == name; });
  if (known == std::end(kKnown)) {
    fail(Errc::NotFound, "there is no model shape \"{}\"; known: {}", name,
         fmt::join(synth_shape_names(), ", "));
  }
  const int n_layers = size.n_layers.value_or(known->depth);
  if (n_layers < 1 || n_layers > known->depth) {
    fail(Errc::BadInput, "{} has {} layers: give from 1 to {}, not {}", name, known->depth,
         known->depth, n_layers);
  }
  SynthShape shape =
      std::visit([&](const auto& sizes) { return make_shape(sizes, n_layers); }, known->sizes);
  if (size.mtp && !shape.blocks.has_mtp) {
    fail(Errc::BadInput, "{} has no head for multi-token prediction in its MLX release", name);
  }
  shape.name = name;
  shape.depth = known->depth;
  shape.mtp = size.mtp;
  return shape;
}

}  // namespace moeflux
