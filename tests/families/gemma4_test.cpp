#include "families/gemma4/gemma4.h"

#include <cmath>

#include <gtest/gtest.h>

#include "families/config_source.h"
#include "support/edited_source.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::ConfigSource;
using test::EditedSource;
using test::expect_error;

// 26B-A4B, but for what says nothing about the text model.
Json released() {
  return parse_json(R"({
    "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
    "eos_token_id": [1, 106], "image_token_id": 258880, "tie_word_embeddings": true,
    "text_config": {
      "model_type": "gemma4_text", "attention_bias": false, "attention_dropout": 0.0,
      "attention_k_eq_v": true, "bos_token_id": 2, "enable_moe_block": true, "eos_token_id": 1,
      "final_logit_softcapping": 30.0, "global_head_dim": 512, "head_dim": 256,
      "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2816,
      "hidden_size_per_layer_input": 0, "initializer_range": 0.02, "intermediate_size": 2112,
      "max_position_embeddings": 262144, "moe_intermediate_size": 704, "num_attention_heads": 16,
      "num_experts": 128, "num_global_key_value_heads": 2, "num_hidden_layers": 30,
      "num_key_value_heads": 8, "num_kv_shared_layers": 0, "pad_token_id": 0,
      "rms_norm_eps": 1e-06,
      "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0,
          "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
      "sliding_window": 1024, "tie_word_embeddings": true, "top_k_experts": 8,
      "use_bidirectional_attention": "vision", "use_cache": true, "use_double_wide_mlp": false,
      "vocab_size": 262144, "vocab_size_per_layer_input": 262144
    },
    "vision_config": {"model_type": "gemma4_vision", "head_dim": 72}
  })",
                    "test");
}

ModelConfig read(const Json& config) {
  return ConfigSource(config).read();
}
AttentionSpec attention(const ModelConfig& config, std::size_t layer) {
  return std::get<AttentionSpec>(config.layers.at(layer).mixer);
}

TEST(Gemma4, ReleasedConfig) {
  const ModelConfig c = read(released());
  EXPECT_EQ(c.family, "gemma4");
  EXPECT_EQ(c.d_model, 2816);
  EXPECT_EQ(c.embed_scale, std::sqrt(2816.0f));
  EXPECT_EQ(c.logit_cap, 30);
  ASSERT_EQ(c.n_layers(), 30);
  EXPECT_TRUE(c.layers[0].has_post_norms && c.layers[0].has_scale);

  const AttentionSpec sliding = attention(c, 0);
  EXPECT_EQ(sliding.window, 1024);
  EXPECT_EQ(sliding.n_heads, 16);
  EXPECT_EQ(sliding.n_kv_heads, 8);
  EXPECT_EQ(sliding.d_head, 256);
  EXPECT_FALSE(sliding.values_are_keys);
  EXPECT_TRUE(sliding.has_value_norm);
  EXPECT_EQ(sliding.qk_norm, QkNorm::PerHead);
  EXPECT_EQ(sliding.scale, 1);
  EXPECT_EQ(sliding.rope.n_rot, 256);
  EXPECT_FLOAT_EQ(sliding.rope.inv_freq[64], 0.01f);

  const AttentionSpec global = attention(c, 5);
  EXPECT_EQ(global.window, 0);
  EXPECT_EQ(global.n_kv_heads, 2);
  EXPECT_EQ(global.d_head, 512);
  EXPECT_TRUE(global.values_are_keys && global.has_value_norm);
  // All pairs of the head, of which the first quarter turns, at frequencies of the whole head.
  EXPECT_EQ(global.rope.n_rot, 512);
  EXPECT_FLOAT_EQ(global.rope.inv_freq[63], static_cast<float>(std::pow(1e6, -126.0 / 512)));
  EXPECT_EQ(global.rope.inv_freq[64], 0);
  EXPECT_EQ(global.rope.inv_freq[255], 0);

  const auto& m = std::get<MoeSpec>(c.layers[0].ffn);
  EXPECT_EQ(m.n_experts, 128);
  EXPECT_EQ(m.top_k, 8);
  EXPECT_EQ(m.d_expert, 704);
  EXPECT_EQ(m.d_shared, 2112);
  EXPECT_FALSE(m.shared_is_gated);
  EXPECT_TRUE(m.has_part_norms);
  EXPECT_TRUE(m.router.has_norm && m.router.has_expert_scales && m.router.normalize);
  EXPECT_EQ(m.activation.kind, FfnActivation::Kind::Gelu);
}

// As transformers writes it from 5.14 on: what differs, by layer.
TEST(Gemma4, HeadsByLayer) {
  const ModelConfig usual = read(released());
  Json config = released();
  Json& text = config["text_config"];
  text.erase("global_head_dim");
  text.erase("num_global_key_value_heads");
  for (const char* layer : {"05", "11", "17", "23", "29"})
    text["per_layer_config"][layer] = {{"head_dim", 512}, {"num_key_value_heads", 2}};
  const ModelConfig by_layer = read(config);
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(attention(by_layer, i).d_head, attention(usual, i).d_head) << i;
    EXPECT_EQ(attention(by_layer, i).n_kv_heads, attention(usual, i).n_kv_heads) << i;
    EXPECT_EQ(attention(by_layer, i).rope.inv_freq, attention(usual, i).rope.inv_freq) << i;
  }
  // Then keys for all global layers say nothing.
  text["per_layer_config"] = Json::object();
  text["global_head_dim"] = 128;
  EXPECT_EQ(attention(read(config), 5).d_head, 256);
  EXPECT_EQ(attention(read(config), 5).n_kv_heads, 8);

  text["per_layer_config"] = {{"30", {{"head_dim", 512}}}};
  expect_error(Errc::BadInput, {"per_layer_config", "30"}, [&] { read(config); });
  text["per_layer_config"] = {{"2", {{"sliding_window", 512}}}};
  expect_error(Errc::Unsupported, {"per_layer_config: 2", "sliding_window"}, [&] { read(config); });
  text["per_layer_config"] = {{"2", 5}};
  expect_error(Errc::BadInput, {"per_layer_config: 2"}, [&] { read(config); });
  text["per_layer_config"] = Json::array({1});
  expect_error(Errc::BadInput, {"per_layer_config"}, [&] { read(config); });
}

TEST(Gemma4, LayerTypes) {
  const ModelConfig usual = read(released());
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(attention(usual, i).window == 0, i % 6 == 5) << i;
  Json config = released();
  config["text_config"]["num_hidden_layers"] = 3;
  config["text_config"]["layer_types"] = {"full_attention", "sliding_attention",
                                          "sliding_attention"};
  const ModelConfig listed = read(config);
  EXPECT_EQ(attention(listed, 0).window, 0);
  EXPECT_EQ(attention(listed, 1).window, 1024);
  EXPECT_EQ(attention(listed, 2).window, 0);  // the last is global in any case
}

TEST(Gemma4, DenseSibling) {
  Json config = released();
  Json& text = config["text_config"];
  text["enable_moe_block"] = false;
  text["attention_k_eq_v"] = false;
  text.erase("final_logit_softcapping");
  text.erase("rope_parameters");
  const ModelConfig c = read(config);
  const auto& ffn = std::get<DenseFfnSpec>(c.layers[0].ffn);
  EXPECT_EQ(ffn.d_ff, 2112);
  EXPECT_EQ(ffn.activation.kind, FfnActivation::Kind::Gelu);
  EXPECT_EQ(attention(c, 5).n_kv_heads, 8);
  EXPECT_FALSE(attention(c, 5).values_are_keys);
  EXPECT_EQ(attention(c, 5).rope.inv_freq, attention(read(released()), 5).rope.inv_freq);
  EXPECT_EQ(c.logit_cap, 0);
}

TEST(Gemma4, Refusals) {
  const auto refused = [](const char* key, const Json& value, Errc code,
                          std::initializer_list<std::string_view> says) {
    Json config = released();
    config["text_config"][key] = value;
    expect_error(code, says, [&] { read(config); });
  };
  refused("hidden_size_per_layer_input", 256, Errc::Unsupported,
          {"hidden_size_per_layer_input", "256", "E2B"});
  refused("num_kv_shared_layers", 10, Errc::Unsupported, {"num_kv_shared_layers", "10"});
  refused("hidden_activation", "silu", Errc::Unsupported, {"hidden_activation", "silu"});
  refused("use_bidirectional_attention", "all", Errc::Unsupported,
          {"use_bidirectional_attention", "all"});
  refused("attention_bias", true, Errc::Unsupported, {"attention_bias"});
  refused("final_logit_softcapping", -1, Errc::BadInput, {"cap of the logits"});
  refused("rope_parameters", {{"rope_theta", 1e4}}, Errc::BadInput, {"sliding_attention"});
  refused("attn_logit_softcapping", 50.0, Errc::Unsupported, {"attn_logit_softcapping"});
  Json config = released();
  config["text_config"]["rope_parameters"]["sliding_attention"]["partial_rotary_factor"] = 0.5;
  expect_error(Errc::Unsupported, {"partial_rotary_factor"}, [&] { read(config); });
}

// ---- tensors
// ---------------------------------------------------------------------------------------------

TEST(Gemma4Tensors, PartsOfALayer) {
  const auto source = open_source(test::data_path("fixtures/gemma4-k_eq_v"));
  const ModelDescription model = describe_model(*source);
  EXPECT_TRUE(model.index.tensors.head.empty());  // tied where the config does not speak of it
  const Layer<Stored>& layer = model.index.tensors.layers.back();
  const auto& global = std::get<Attention<Stored>>(layer.mixer);
  EXPECT_TRUE(global.v.weight.empty());
  EXPECT_FALSE(global.k.weight.empty());
  EXPECT_TRUE(layer.mixer_post_norm.name.ends_with("post_attention_layernorm.weight"));
  EXPECT_TRUE(layer.ffn_norm.name.ends_with("pre_feedforward_layernorm.weight"));
  EXPECT_TRUE(layer.ffn_post_norm.name.ends_with("post_feedforward_layernorm.weight"));
  EXPECT_TRUE(layer.scale.name.ends_with("layer_scalar"));
  const auto& moe = std::get<Moe<Stored>>(layer.ffn);
  EXPECT_TRUE(moe.shared.gate.weight.name.ends_with("mlp.gate_proj.weight"));
  EXPECT_TRUE(moe.expert_norm.name.ends_with("pre_feedforward_layernorm_2.weight"));
  EXPECT_TRUE(moe.shared_post_norm.name.ends_with("post_feedforward_layernorm_1.weight"));
  EXPECT_TRUE(moe.expert_post_norm.name.ends_with("post_feedforward_layernorm_2.weight"));
  EXPECT_FLOAT_EQ(moe.router_norm.factor, 1 / std::sqrt(static_cast<float>(model.config.d_model)));
  EXPECT_EQ(moe.expert_scales.size, moe.spec.n_experts);
}

TEST(Gemma4Tensors, MissingOnesAreNamed) {
  for (const char* name : {"layers.0.layer_scalar", "layers.1.router.per_expert_scale",
                           "layers.1.post_feedforward_layernorm_2.weight"}) {
    EditedSource source(test::data_path("fixtures/gemma4-k_eq_v"));
    source.remove(name);
    expect_error(Errc::NotFound, {name}, [&] { describe_model(*source.build()); });
  }
}

}  // namespace
}  // namespace moeflux
