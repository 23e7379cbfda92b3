#include "families/gpt_oss/gpt_oss.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "families/config_source.h"
#include "support/edited_source.h"
#include "support/expect_error.h"
#include "support/loaded_model.h"

namespace moeflux {
namespace {

using test::ConfigSource;
using test::EditedSource;
using test::expect_error;

// gpt-oss-120b, but for what says nothing about the model.
Json released() {
  return parse_json(R"({
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss",
    "attention_bias": true, "attention_dropout": 0.0, "eos_token_id": 200002, "pad_token_id": 199999,
    "experts_per_token": 4, "num_experts_per_tok": 4, "num_local_experts": 128, "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
    "initializer_range": 0.02, "intermediate_size": 2880, "layer_types": null,
    "max_position_embeddings": 131072, "num_attention_heads": 64, "num_hidden_layers": 36,
    "num_key_value_heads": 8, "output_router_logits": false, "rms_norm_eps": 1e-05,
    "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "truncate": false,
      "original_max_position_embeddings": 4096, "rope_type": "yarn"},
    "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
    "tie_word_embeddings": false, "use_cache": true, "vocab_size": 201088
  })",
                    "test");
}

ModelConfig read(const Json& config) {
  return ConfigSource(config).read();
}
AttentionSpec attention(const ModelConfig& config, std::size_t layer = 0) {
  return std::get<AttentionSpec>(config.layers.at(layer).mixer);
}
MoeSpec moe(const ModelConfig& config, std::size_t layer = 0) {
  return std::get<MoeSpec>(config.layers.at(layer).ffn);
}

TEST(GptOss, ReleasedConfig) {
  const ModelConfig c = read(released());
  EXPECT_EQ(c.family, "gpt_oss");
  EXPECT_EQ(c.d_model, 2880);
  EXPECT_EQ(c.n_vocab, 201088);
  EXPECT_EQ(c.norm_eps, 1e-5f);
  ASSERT_EQ(c.n_layers(), 36);
  const AttentionSpec a = attention(c);
  EXPECT_EQ(a.n_heads, 64);
  EXPECT_EQ(a.n_kv_heads, 8);
  EXPECT_EQ(a.d_head, 64);
  EXPECT_EQ(a.scale, 0.125f);
  EXPECT_TRUE(a.has_bias && a.has_out_bias && a.has_sinks);
  EXPECT_FALSE(a.has_output_gate);
  EXPECT_EQ(a.qk_norm, QkNorm::None);
  EXPECT_EQ(a.rope.n_rot, 64);
  EXPECT_NEAR(a.rope.magnitude, 1.3465736, 1e-6);
  const MoeSpec m = moe(c);
  EXPECT_EQ(m.n_experts, 128);
  EXPECT_EQ(m.top_k, 4);
  EXPECT_EQ(m.d_expert, 2880);
  EXPECT_TRUE(m.has_expert_bias);
  EXPECT_TRUE(m.router.scores_chosen && m.router.has_bias);
  EXPECT_EQ(m.activation,
            (FfnActivation{FfnActivation::Kind::ClampedSwiglu, /*alpha=*/1.702f, /*limit=*/7}));
  EXPECT_EQ(m.d_shared, 0);
}

TEST(GptOss, WindowsFollowTheLayerTypes) {
  const ModelConfig alternating = read(released());
  for (const std::size_t i : {0, 2, 34}) EXPECT_EQ(attention(alternating, i).window, 128) << i;
  for (const std::size_t i : {1, 3, 35}) EXPECT_EQ(attention(alternating, i).window, 0) << i;

  Json config = released();
  config["num_hidden_layers"] = 3;
  config["sliding_window"] = 5;
  config["layer_types"] = {"full_attention", "sliding_attention", "sliding_attention"};
  const ModelConfig listed = read(config);
  EXPECT_EQ(attention(listed, 0).window, 0);
  EXPECT_EQ(attention(listed, 1).window, 5);
  EXPECT_EQ(attention(listed, 2).window, 5);
  // Both kinds of layers turn alike.
  EXPECT_EQ(attention(listed, 0).rope.inv_freq, attention(listed, 1).rope.inv_freq);
}

TEST(GptOss, WhatTheReferenceAssumes) {
  Json config = released();
  for (const char* key :
       {"rope_scaling", "rope_theta", "sliding_window", "swiglu_limit", "attention_bias",
        "rms_norm_eps", "experts_per_token", "head_dim", "layer_types"})
    config.erase(key);
  const ModelConfig c = read(config), full = read(released());
  EXPECT_EQ(attention(c).rope.inv_freq, attention(full).rope.inv_freq);
  EXPECT_EQ(attention(c).rope.magnitude, attention(full).rope.magnitude);
  EXPECT_EQ(attention(c).window, 128);
  EXPECT_TRUE(attention(c).has_bias);
  EXPECT_EQ(attention(c).d_head, 64);
  EXPECT_EQ(moe(c).activation, moe(full).activation);
  EXPECT_EQ(c.norm_eps, 1e-5f);
  config["head_dim"] = nullptr;  // the heads share the hidden size
  config["num_attention_heads"] = 40;
  EXPECT_EQ(attention(read(config)).d_head, 72);
}

TEST(GptOss, WhatTheConfigSaysCounts) {
  Json config = released();
  config.erase("rope_scaling");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5000.0}};
  config.erase("rope_theta");
  config["swiglu_limit"] = 3.5;
  config["attention_bias"] = false;
  config.erase("num_local_experts");
  config["num_experts"] = 6;
  const ModelConfig c = read(config);
  EXPECT_EQ(attention(c).rope.magnitude, 1);
  EXPECT_FALSE(attention(c).has_bias || attention(c).has_out_bias);
  EXPECT_EQ(moe(c).activation.limit, 3.5f);
  EXPECT_EQ(moe(c).n_experts, 6);
}

TEST(GptOss, Refusals) {
  const auto refused = [](const char* key, const Json& value, Errc code,
                          std::initializer_list<std::string_view> says) {
    Json config = released();
    config[key] = value;
    expect_error(code, says, [&] { read(config); });
  };
  refused("hidden_act", "gelu", Errc::Unsupported, {"hidden_act", "gelu"});
  refused("experts_per_token", 8, Errc::Unsupported, {"experts_per_token", "8", "4"});
  refused("layer_types", {"full_attention"}, Errc::BadInput, {"layer_types", "36"});
  refused("layer_types", Json(std::vector<std::string>(36, "chunked_attention")), Errc::Unsupported,
          {"layer_types[0]", "chunked_attention", "sliding_attention"});
  refused("swiglu_limit", 0, Errc::BadInput, {"clamped SwiGLU", "0"});
  refused("sliding_window", 0, Errc::BadInput, {"sliding_window", "0"});
  refused("attn_logit_softcapping", 50.0, Errc::Unsupported, {"attn_logit_softcapping"});
  refused("use_qk_norm", true, Errc::Unsupported, {"use_qk_norm"});
}

TEST(GptOss, AMessageEndIsNoEnd) {
  const auto& ends = kGptOss.end_tokens;
  EXPECT_NE(std::find(ends.begin(), ends.end(), "<|return|>"), ends.end());
  EXPECT_NE(std::find(ends.begin(), ends.end(), "<|call|>"), ends.end());
  EXPECT_EQ(std::find(ends.begin(), ends.end(), "<|end|>"), ends.end());
}

// ---- tensors: gate and up rows of fused experts alternate
// ---------------------------------------------------------------------------------

TEST(GptOssTensors, FusedExpertsArePulledApart) {
  const auto source = open_source(test::data_path("families/gpt_oss"));
  const ModelDescription model = describe_model(*source);
  const auto& layer = std::get<Moe<Stored>>(model.index.tensors.layers.at(1).ffn);
  const MoeSpec& s = layer.spec;
  EXPECT_EQ(layer.gate_bias.size, s.n_experts * s.d_expert);
  EXPECT_EQ(layer.gate_bias.first, 0);
  EXPECT_EQ(layer.up_bias.first, 1);
  EXPECT_EQ(layer.up_bias.step, 2);
  EXPECT_EQ(layer.down_bias.size, s.n_experts * model.config.d_model);
  const ExpertBank& bank = model.index.experts.at(static_cast<std::size_t>(layer.bank));
  for (const StoredExpertBank* part : {&bank.gate, &bank.up}) {
    EXPECT_EQ(part->count(), s.n_experts);
    EXPECT_EQ(part->at(0).rows, s.d_expert);
    EXPECT_EQ(part->at(0).cols, model.config.d_model);
    EXPECT_EQ(part->at(0).format.kind, WeightKind::Fp4);
  }
}

TEST(GptOssTensors, ABiasThatTheConfigDenies) {
  EditedSource source(test::data_path("families/gpt_oss"));
  source.config()["attention_bias"] = false;
  expect_error(Errc::Unsupported, {"_proj.bias"}, [&] { describe_model(*source.build()); });
}

TEST(GptOssTensors, MissingOnesAreNamed) {
  for (const char* name : {"layers.2.self_attn.sinks", "layers.1.mlp.router.bias",
                           "layers.0.mlp.experts.down_proj_bias"}) {
    EditedSource source(test::data_path("families/gpt_oss"));
    source.remove(name);
    expect_error(Errc::NotFound, {name}, [&] { describe_model(*source.build()); });
  }
}

}  // namespace
}  // namespace moeflux
