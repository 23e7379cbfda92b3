// The configs of released checkpoints, with the fields that say something about the model.
#pragma once

namespace moeflux::test {

// Qwen3.6-35B-A3B: multimodal wrapper, rope_parameters. `layer_types` follows the interval of 4.
inline constexpr const char* kQwen35B = R"({
  "architectures": ["Qwen3_5MoeForConditionalGeneration"],
  "model_type": "qwen3_5_moe",
  "tie_word_embeddings": false,
  "image_token_id": 248056,
  "text_config": {
    "model_type": "qwen3_5_moe_text",
    "attention_bias": false, "attention_dropout": 0.0, "attn_output_gate": true,
    "bos_token_id": 248044, "eos_token_id": 248044, "dtype": "bfloat16",
    "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144, "moe_intermediate_size": 512, "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": false, "num_attention_heads": 16, "num_experts": 256,
    "num_experts_per_tok": 8, "num_hidden_layers": 40, "num_key_value_heads": 2,
    "output_router_logits": false, "pad_token_id": null, "partial_rotary_factor": 0.25,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10],
      "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default"},
    "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": false, "use_cache": true, "vocab_size": 248320
  },
  "vision_config": {"model_type": "qwen3_5_moe", "depth": 27, "hidden_size": 1152}
})";

// The 2.4T release: text only, everything at the top level.
inline constexpr const char* kQwenFlat = R"({
  "architectures": ["Qwen3_5MoeForCausalLM"],
  "model_type": "qwen3_5_moe_text",
  "attention_bias": false, "attn_output_gate": true, "output_gate_type": "swish",
  "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 8192,
  "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
  "linear_num_value_heads": 128, "linear_value_head_dim": 128,
  "max_position_embeddings": 262144, "moe_intermediate_size": 2048,
  "num_attention_heads": 64, "num_experts": 512, "num_experts_per_tok": 10,
  "num_hidden_layers": 92, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
   "partial_rotary_factor": 0.25},
  "shared_expert_intermediate_size": 2048, "tie_word_embeddings": false, "vocab_size": 248320
})";

inline constexpr const char* kDeepseekV3 = R"({
  "architectures": ["DeepseekV3ForCausalLM"],
  "model_type": "deepseek_v3",
  "attention_bias": false, "aux_loss_alpha": 0.001, "bos_token_id": 0, "eos_token_id": 1,
   "ep_size": 1,
  "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432,
  "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 2048,
  "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1,
  "norm_topk_prob": true, "num_attention_heads": 128, "num_experts_per_tok": 8,
  "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
  "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
    "weight_block_size": [128, 128]},
  "rms_norm_eps": 1e-06,
  "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
   "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096, "type": "yarn"},
  "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "seq_aux": true,
  "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc", "v_head_dim": 128,
  "vocab_size": 129280
})";

inline constexpr const char* kKimiK2 = R"({
  "architectures": ["DeepseekV3ForCausalLM"],
  "model_type": "kimi_k2",
  "attention_bias": false, "bos_token_id": 163584, "eos_token_id": 163585,
  "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432,
  "kv_lora_rank": 512, "max_position_embeddings": 131072, "moe_intermediate_size": 2048,
  "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 384, "n_shared_experts": 1,
  "norm_topk_prob": true, "num_attention_heads": 64, "num_experts_per_tok": 8,
  "num_hidden_layers": 61, "num_key_value_heads": 64, "num_nextn_predict_layers": 0,
  "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
  "rope_scaling": {"beta_fast": 1.0, "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0,
   "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096, "type": "yarn"},
  "rope_theta": 50000.0, "routed_scaling_factor": 2.827, "scoring_func": "sigmoid",
  "tie_word_embeddings": false, "topk_group": 1, "topk_method": "noaux_tc", "v_head_dim": 128,
  "vocab_size": 163840
})";

inline constexpr const char* kQwen3Coder480B = R"({
  "architectures": ["Qwen3MoeForCausalLM"],
  "model_type": "qwen3_moe",
  "attention_bias": false, "attention_dropout": 0.0, "decoder_sparse_step": 1,
  "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 6144,
  "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 262144,
  "max_window_layers": 62, "mlp_only_layers": [], "moe_intermediate_size": 2560,
  "norm_topk_prob": true, "num_attention_heads": 96, "num_experts": 160,
  "num_experts_per_tok": 8, "num_hidden_layers": 62, "num_key_value_heads": 8,
  "output_router_logits": false, "qkv_bias": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
  "rope_theta": 10000000, "router_aux_loss_coef": 0.0, "shared_expert_intermediate_size": 0,
  "sliding_window": null, "tie_word_embeddings": false, "use_cache": true, "use_qk_norm": true,
  "use_sliding_window": false, "vocab_size": 151936
})";

inline constexpr const char* kQwen3_4B = R"({
  "architectures": ["Qwen3ForCausalLM"],
  "model_type": "qwen3",
  "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560,
  "initializer_range": 0.02, "intermediate_size": 9728, "max_position_embeddings": 40960,
  "max_window_layers": 36, "num_attention_heads": 32, "num_hidden_layers": 36,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
  "sliding_window": null, "tie_word_embeddings": true, "use_cache": true,
  "use_sliding_window": false, "vocab_size": 151936
})";

inline constexpr const char* kGlm45 = R"({
  "architectures": ["Glm4MoeForCausalLM"],
  "model_type": "glm4_moe",
  "attention_bias": true, "attention_dropout": 0.0, "pad_token_id": 151329,
  "eos_token_id": [151329, 151336, 151338], "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 5120, "partial_rotary_factor": 0.5, "initializer_range": 0.02,
  "intermediate_size": 12288, "max_position_embeddings": 131072, "moe_intermediate_size": 1536,
  "norm_topk_prob": true, "num_attention_heads": 96, "n_group": 1, "topk_group": 1,
  "n_routed_experts": 160, "n_shared_experts": 1, "routed_scaling_factor": 2.5,
  "num_experts_per_tok": 8, "first_k_dense_replace": 3, "num_hidden_layers": 92,
  "num_key_value_heads": 8, "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": null, "rope_theta": 1000000, "tie_word_embeddings": false, "use_cache": true,
  "use_qk_norm": true, "vocab_size": 151552
})";

inline constexpr const char* kGlm4_32B = R"({
  "architectures": ["Glm4ForCausalLM"],
  "model_type": "glm4",
  "attention_bias": false, "attention_dropout": 0.0, "eos_token_id": [151329, 151336, 151338],
  "head_dim": 128, "hidden_act": "silu", "hidden_size": 6144, "initializer_range": 0.02,
  "intermediate_size": 23040, "max_position_embeddings": 32768, "num_attention_heads": 48,
  "num_hidden_layers": 61, "num_key_value_heads": 2, "pad_token_id": 151329,
  "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "use_cache": true, "vocab_size": 151552
})";

inline constexpr const char* kMinimaxM2 = R"({
  "architectures": ["MiniMaxM2ForCausalLM"],
  "model_type": "minimax_m2",
  "attention_dropout": 0.0, "attn_type_list": [1, 1, 1], "bos_token_id": 200034,
  "eos_token_id": 200020, "head_dim": 128, "hidden_act": "silu", "hidden_size": 3072,
  "initializer_range": 0.02, "intermediate_size": 1536, "layernorm_full_attention_beta": 1.0,
  "layernorm_linear_attention_beta": 1.0, "layernorm_mlp_beta": 1.0,
  "max_position_embeddings": 196608, "mlp_intermediate_size": 8192, "mtp_transformer_layers": 1,
  "num_attention_heads": 48, "num_experts_per_tok": 8, "num_hidden_layers": 62,
  "num_key_value_heads": 8, "num_local_experts": 256, "num_mtp_modules": 3,
  "output_router_logits": false, "qk_norm_type": "per_layer",
  "quantization_config": {"activation_scheme": "dynamic", "fmt": "float8_e4m3fn",
    "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
    "quant_method": "fp8", "weight_block_size": [128, 128]},
  "rms_norm_eps": 1e-06, "rope_theta": 5000000, "rotary_dim": 64, "router_aux_loss_coef": 0.001,
  "router_jitter_noise": 0.0, "scoring_func": "sigmoid", "shared_intermediate_size": 0,
  "shared_moe_mode": "sigmoid", "sliding_window": null, "tie_word_embeddings": false,
  "use_cache": true, "use_mtp": true, "use_qk_norm": true, "use_routing_bias": true,
  "vocab_size": 200064
})";

inline constexpr const char* kLlama31 = R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 128000,
  "eos_token_id": [128001, 128008, 128009],
  "hidden_act": "silu",
  "hidden_size": 4096,
  "initializer_range": 0.02,
  "intermediate_size": 14336,
  "max_position_embeddings": 131072,
  "mlp_bias": false,
  "num_attention_heads": 32,
  "num_hidden_layers": 32,
  "num_key_value_heads": 8,
  "pretraining_tp": 1,
  "rms_norm_eps": 1e-05,
  "rope_scaling": {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3"
  },
  "rope_theta": 500000.0,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "use_cache": true,
  "vocab_size": 128256
})";

inline constexpr const char* kMixtral8x22B = R"({
  "architectures": ["MixtralForCausalLM"],
  "model_type": "mixtral",
  "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
  "hidden_size": 6144, "initializer_range": 0.02, "intermediate_size": 16384,
  "max_position_embeddings": 65536, "num_attention_heads": 48, "num_experts_per_tok": 2,
  "num_hidden_layers": 56, "num_key_value_heads": 8, "num_local_experts": 8,
  "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_theta": 1000000,
  "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false,
  "use_cache": true, "vocab_size": 32000
})";

inline constexpr const char* kOlmoe7B = R"({
  "architectures": ["OlmoeForCausalLM"],
  "model_type": "olmoe",
  "attention_bias": false, "attention_dropout": 0.0, "clip_qkv": null, "eos_token_id": 50279,
  "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
  "intermediate_size": 1024, "max_position_embeddings": 4096, "norm_topk_prob": false,
  "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
  "num_hidden_layers": 16, "num_key_value_heads": 16, "output_router_logits": false,
  "pad_token_id": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
  "router_aux_loss_coef": 0.01, "tie_word_embeddings": false, "use_cache": true,
  "vocab_size": 50304
})";

}  // namespace moeflux::test
