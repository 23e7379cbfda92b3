// Which keys of a config pass: those of released checkpoints, of exporters and of converters, with
// the values they have there. Any other that seems to say something about the model is refused.
#include "families/config_keys.h"

#include <gtest/gtest.h>

#include "families/config_source.h"
#include "families/released_configs.h"
#include "support/expect_error.h"

namespace moeflux {
namespace {

using test::ConfigSource;
using test::expect_error;

void read(const Json& config) {
  ConfigSource(config, {"model.embed_tokens.weight"}).read();
}

struct Export {
  const char* name;
  const char* base;
  const char* text_keys;     // besides those of the base
  const char* wrapper_keys;  // beside text_config; of the config itself where there is none
};

// What releases and conversions have besides the fields of released_configs.h.
constexpr Export kExports[] = {
    {"Qwen3_5_397B", test::kQwen35B,
     R"({"mlp_only_layers": [], "output_gate_type": "swish", "layer_types": null,
         "norm_topk_prob": true, "decoder_sparse_step": 1})",
     R"({"video_token_id": 248057, "vision_start_token_id": 248053, "vision_end_token_id": 248054,
         "transformers_version": "4.57.0.dev0", "torch_dtype": "bfloat16"})"},
    {"Qwen3_6_Mlx", test::kQwen35B, "{}",
     R"({"eos_token_id": [248046, 248044], "quantization": {"group_size": 64, "bits": 4,
         "mode": "affine"}, "quantization_config": {"group_size": 64, "bits": 4, "mode": "affine"}})"},
    {"Qwen3_6_Saved", test::kQwen35B,
     R"({"_attn_implementation_autoset": true, "chunk_size_feed_forward": 0, "problem_type": null,
         "is_encoder_decoder": false, "output_attentions": false, "output_hidden_states": false,
         "return_dict": true, "use_sliding_window": false, "sliding_window": 32768,
         "max_window_layers": 28})",
     R"({"unsloth_fixed": true})"},
    {"DeepseekR1", test::kDeepseekV3,
     R"({"attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_deepseek.X"},
         "initializer_range": 0.02, "pretraining_tp": 1, "torch_dtype": "bfloat16",
         "transformers_version": "4.33.1", "use_cache": true})",
     "{}"},
    {"CogitoV2", test::kDeepseekV3,
     R"({"attention_dropout": 0.0, "head_dim": 64, "qk_head_dim": 192, "rope_interleave": true,
         "pad_token_id": 2, "dtype": "bfloat16", "mlp_bias": false})",
     "{}"},
    {"DeepseekMlx", test::kDeepseekV3, R"({"head_dim": 192, "quantization_config": null,
         "quantization": {"group_size": 64, "bits": 4}})",
     "{}"},
    {"KimiK2Dump", test::kKimiK2,
     R"({"_name_or_path": "", "add_cross_attention": false, "attention_dropout": 0.0,
         "aux_loss_alpha": 0.001, "bad_words_ids": null, "cross_attention_hidden_size": null,
         "diversity_penalty": 0.0, "early_stopping": false, "ep_size": 1, "id2label": {"0": "a"},
         "output_attentions": false, "pruned_heads": {}, "repetition_penalty": 1.0,
         "seq_aux": true, "tie_encoder_decoder": false, "use_bfloat16": false})",
     R"({"media_placeholder_token_id": 163605, "use_unified_vision_chunk": true})"},
};

TEST(ConfigKeys, ReleasedAndConvertedConfigsPass) {
  for (const Export& e : kExports) {
    Json config = parse_json(e.base, "test");
    config.update(parse_json(e.wrapper_keys, e.name));
    (config.contains("text_config") ? config["text_config"] : config)
        .update(parse_json(e.text_keys, e.name));
    EXPECT_NO_THROW(read(config)) << e.name;
  }
}

TEST(ConfigKeys, UnknownOnesAreRefusedWithTheirValue) {
  const std::pair<const char*, Json> unknown[] = {
      {"sliding_window", 4096},
      {"max_window_layers", 28},
      {"attention_sink_size", 4},
      {"attn_logit_softcapping", 50.5},
      {"final_logit_softcapping", 30.5},
      {"attention_out_bias", true},
      {"attention_multiplier", 0.5},
      {"query_pre_attn_scalar", 256},
      {"use_qk_norm", true},
      {"qk_layernorm", true},
      {"num_kv_shared_layers", 2},
      {"rotary_pct", 0.5},
      {"rotary_dim", 32},
      {"rope_local_base_freq", 10000},
      {"use_yarn", true},
      {"position_embedding_type", "alibi"},
      {"alibi_slopes", Json::array({1, 2})},
      {"embedding_multiplier", 12},
      {"scale_emb", 12},
      {"clip_qkv", 8},
      {"layer_norm_eps", 1e-5},
      {"index_n_heads", 64},
      {"per_layer_config", {{"3", {{"intermediate_size", 128}}}}},
  };
  for (const char* base : {test::kQwen35B, test::kQwenFlat, test::kDeepseekV3, test::kKimiK2}) {
    for (const auto& [key, value] : unknown) {
      Json config = parse_json(base, "test");
      const bool nested = config.contains("text_config");
      (nested ? config["text_config"] : config)[key] = value;
      expect_error(Errc::Unsupported,
                   {"model/config.json", "\"" + std::string(key) + "\": " + dump_json(value)},
                   [&] { read(config); });
    }
  }
}

// What only one family reads says nothing good in a config of the other.
TEST(ConfigKeys, KeysOfTheOtherFamily) {
  Json qwen = parse_json(test::kQwenFlat, "test");
  qwen["rope_interleave"] = true;
  expect_error(Errc::Unsupported, {"rope_interleave", "true"}, [&] { read(qwen); });
  Json deepseek = parse_json(test::kDeepseekV3, "test");
  deepseek["attn_output_gate"] = true;
  expect_error(Errc::Unsupported, {"attn_output_gate", "true"}, [&] { read(deepseek); });
}

TEST(ConfigKeys, BesideTheTextConfig) {
  Json config = parse_json(test::kQwen35B, "test");
  config["head_dim"] = 256;
  config["attention_dropout"] = 0.5;
  config["attention_bias"] = false;
  EXPECT_NO_THROW(read(config));
  config["head_dim"] = 128;
  expect_error(Errc::Unsupported, {"model/config.json", "head_dim", "128", "text_config"},
               [&] { read(config); });
  config.erase("head_dim");
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4}};
  expect_error(Errc::Unsupported, {"rope_scaling", "yarn"}, [&] { read(config); });
}

TEST(ConfigKeys, SwitchesMustBeOff) {
  for (const char* key :
       {"attention_bias", "mlp_bias", "use_sliding_window", "add_cross_attention"}) {
    Json config = parse_json(test::kQwen35B, "test");
    config[key] = true;
    expect_error(Errc::Unsupported, {"model/config.json", key, "true"}, [&] { read(config); });
    config.erase(key);
    config["text_config"][key] = true;
    expect_error(Errc::Unsupported, {"text_config", key, "true"}, [&] { read(config); });
    config["text_config"][key] = 1;
    expect_error(Errc::BadInput, {"text_config", key}, [&] { read(config); });
  }
}

TEST(ConfigKeys, SwitchesThatAFamilyReads) {
  ModelSource source("model", ModelSource::Layout::Safetensors);
  source.set_config({{"attention_bias", true}, {"mlp_bias", false}}, "model/config.json");
  expect_error(Errc::Unsupported, {"attention_bias", "true"},
               [&] { refuse_unread_keys(source, {}); });
  constexpr std::string_view kRead[] = {"attention_bias"};
  EXPECT_NO_THROW(refuse_unread_keys(source, kRead));
}

TEST(ConfigKeys, NullSaysNothing) {
  Json config = parse_json(test::kDeepseekV3, "test");
  config["sliding_window"] = nullptr;
  config["per_layer_config"] = Json::object();  // nor does an empty object
  EXPECT_NO_THROW(read(config));
}

}  // namespace
}  // namespace moeflux
