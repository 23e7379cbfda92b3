#include "families/deepseek_v3/deepseek_v3.h"

#include <gtest/gtest.h>

#include "families/config_source.h"
#include "families/released_configs.h"
#include "support/edited_source.h"
#include "support/expect_error.h"
#include "support/loaded_model.h"

namespace moeflux {
namespace {

using test::ConfigSource;
using test::EditedSource;
using test::expect_error;
using test::fixture_path;

const std::vector<std::string> kEmbedding{"model.embed_tokens.weight"};

Json released() {
  return parse_json(test::kDeepseekV3, "test");
}

// ---- config
// ---------------------------------------------------------------------------------------------

TEST(DeepseekV3, ReleasedConfig) {
  const ModelConfig c = ConfigSource(released(), kEmbedding).read();
  EXPECT_EQ(c.family, "deepseek_v3");
  EXPECT_EQ(c.d_model, 7168);
  EXPECT_EQ(c.n_vocab, 129280);
  EXPECT_EQ(c.context_length, 163840);
  ASSERT_EQ(c.n_layers(), 61);
  for (const int i : {0, 1, 2}) EXPECT_EQ(std::get<DenseFfnSpec>(c.layers[i].ffn).d_ff, 18432);
  for (const int i : {3, 60}) EXPECT_TRUE(std::holds_alternative<MoeSpec>(c.layers[i].ffn));

  const auto& a = std::get<MlaSpec>(c.layers[0].mixer);
  EXPECT_EQ(a.n_heads, 128);
  EXPECT_EQ(a.q_rank, 1536);
  EXPECT_EQ(a.kv_rank, 512);
  EXPECT_EQ(a.d_nope, 128);
  EXPECT_EQ(a.d_rope, 64);
  EXPECT_EQ(a.d_value, 128);
  EXPECT_NEAR(a.scale, 0.1352338, 1e-7);
  EXPECT_EQ(a.latent_norm_eps, 1e-6f);
  EXPECT_EQ(a.rope.n_rot, 64);
  EXPECT_TRUE(a.rope.interleaved);
  EXPECT_EQ(a.rope.magnitude, 1.0f);

  const auto& m = std::get<MoeSpec>(c.layers[3].ffn);
  EXPECT_EQ(m.n_experts, 256);
  EXPECT_EQ(m.top_k, 8);
  EXPECT_EQ(m.d_expert, 2048);
  EXPECT_EQ(m.d_shared, 2048);
  EXPECT_FALSE(m.shared_is_gated);
  EXPECT_EQ(m.router.scoring, RouterScoring::Sigmoid);
  EXPECT_TRUE(m.router.has_correction_bias);
  EXPECT_EQ(m.router.n_groups, 8);
  EXPECT_EQ(m.router.top_groups, 4);
  EXPECT_TRUE(m.router.normalize);
  EXPECT_EQ(m.router.scale, 2.5f);
  EXPECT_FALSE(c.mtp.has_value());  // announced, but no tensors
}

TEST(DeepseekV3, CogitoV2WithAStrayHeadSize) {
  Json config = released();
  config["vocab_size"] = 128815;
  config["head_dim"] = 64;
  config["qk_head_dim"] = 192;
  const ModelConfig c = ConfigSource(config, kEmbedding).read();
  EXPECT_EQ(c.n_vocab, 128815);
  const auto& a = std::get<MlaSpec>(c.layers[0].mixer);
  EXPECT_EQ(a.d_nope, 128);
  EXPECT_EQ(a.d_rope, 64);
  EXPECT_NEAR(a.scale, 0.1352338, 1e-7);
}

TEST(DeepseekV3, KimiK2) {
  const ModelConfig c = ConfigSource(parse_json(test::kKimiK2, "test"), kEmbedding).read();
  EXPECT_EQ(c.n_vocab, 163840);
  EXPECT_TRUE(std::holds_alternative<DenseFfnSpec>(c.layers[0].ffn));
  EXPECT_TRUE(std::holds_alternative<MoeSpec>(c.layers[1].ffn));
  const auto& a = std::get<MlaSpec>(c.layers[0].mixer);
  EXPECT_EQ(a.n_heads, 64);
  EXPECT_NEAR(a.scale, 0.1308608, 1e-7);
  EXPECT_FLOAT_EQ(a.rope.inv_freq[20], static_cast<float>(std::pow(5e4, -40.0 / 64) / 32));
  EXPECT_FLOAT_EQ(a.rope.inv_freq[19], static_cast<float>(std::pow(5e4, -38.0 / 64)));
  const auto& m = std::get<MoeSpec>(c.layers[1].ffn);
  EXPECT_EQ(m.n_experts, 384);
  EXPECT_EQ(m.router.n_groups, 1);
  EXPECT_EQ(m.router.scale, 2.827f);
}

TEST(DeepseekV3, KimiK25Wrapper) {
  Json text = parse_json(test::kKimiK2, "test");
  text["rope_scaling"]["factor"] = 64.0;
  const Json config{
      {"model_type", "kimi_k25"}, {"text_config", text}, {"vision_config", Json::object()}};
  const ModelConfig c = ConfigSource(config, {"language_model.model.embed_tokens.weight"}).read();
  EXPECT_EQ(c.d_model, 7168);
  EXPECT_NEAR(std::get<MlaSpec>(c.layers[0].mixer).scale, 0.1446796, 1e-7);
}

TEST(DeepseekV3, RopeInItsNewPlaceAndPairing) {
  Json config = released();
  Json rope = config["rope_scaling"];
  rope.erase("type");
  rope["rope_type"] = "yarn";
  rope["rope_theta"] = 10000;
  config["rope_parameters"] = rope;
  config["rope_interleave"] = false;
  for (const char* key : {"rope_scaling", "rope_theta"}) config.erase(key);
  const ModelConfig c = ConfigSource(config, kEmbedding).read();
  const auto& a = std::get<MlaSpec>(c.layers[0].mixer);
  EXPECT_FALSE(a.rope.interleaved);
  EXPECT_NEAR(a.scale, 0.1352338, 1e-7);
}

TEST(DeepseekV3, WithoutYarnTheScaleIsPlain) {
  Json config = released();
  config["rope_scaling"] = nullptr;
  const auto plain = std::get<MlaSpec>(ConfigSource(config, kEmbedding).read().layers[0].mixer);
  EXPECT_NEAR(plain.scale, 0.0721688, 1e-7);
  EXPECT_FLOAT_EQ(plain.rope.inv_freq[31], static_cast<float>(std::pow(1e4, -62.0 / 64)));
  config = released();
  config["rope_scaling"]["mscale_all_dim"] = 0;
  EXPECT_NEAR(std::get<MlaSpec>(ConfigSource(config, kEmbedding).read().layers[0].mixer).scale,
              0.0721688, 1e-7);
}

TEST(DeepseekV3, DefaultsOfAbsentFields) {
  Json config = released();
  for (const char* key : {"moe_layer_freq", "n_group", "topk_group", "norm_topk_prob",
                          "n_shared_experts", "scoring_func", "topk_method",
                          "num_nextn_predict_layers", "first_k_dense_replace", "hidden_act"}) {
    config.erase(key);
  }
  config["q_lora_rank"] = nullptr;
  const ModelConfig c = ConfigSource(config, kEmbedding).read();
  const auto& m = std::get<MoeSpec>(c.layers[0].ffn);
  EXPECT_EQ(m.router.n_groups, 1);
  EXPECT_EQ(m.d_shared, 0);
  EXPECT_TRUE(m.router.normalize);
  EXPECT_EQ(std::get<MlaSpec>(c.layers[0].mixer).q_rank, 0);
}

// As a model cut down to its first layers may have it.
TEST(DeepseekV3, MoreDenseLayersThanThereAre) {
  Json config = released();
  config["num_hidden_layers"] = 2;
  const ModelConfig c = ConfigSource(config, kEmbedding).read();
  ASSERT_EQ(c.n_layers(), 2);
  for (const LayerSpec& layer : c.layers)
    EXPECT_TRUE(std::holds_alternative<DenseFfnSpec>(layer.ffn));
}

TEST(DeepseekV3, MoeLayerFrequency) {
  Json config = released();
  config["moe_layer_freq"] = 2;
  const ModelConfig c = ConfigSource(config, kEmbedding).read();
  for (int i = 0; i < 61; ++i) {
    EXPECT_EQ(std::holds_alternative<MoeSpec>(c.layers[i].ffn), i >= 3 && i % 2 == 0) << i;
  }
}

TEST(DeepseekV3, MtpIsWhereItsTensorsAre) {
  const ModelConfig c =
      ConfigSource(released(), {"model.embed_tokens.weight", "model.layers.61.eh_proj.weight"})
          .read();
  ASSERT_TRUE(c.mtp.has_value());
  EXPECT_TRUE(std::holds_alternative<MlaSpec>(c.mtp->mixer));
  EXPECT_TRUE(std::holds_alternative<MoeSpec>(c.mtp->ffn));
}

// ---- tensors
// ----------------------------------------------------------------------------------------------

TEST(DeepseekV3Tensors, EmbedQInPlaceOfKvB) {
  const ModelDescription model = describe_model(*open_source(fixture_path("mlx-dsv3-embedq")));
  const auto& t = std::get<LatentAttention<Stored>>(model.index.tensors.layers[0].mixer);
  EXPECT_TRUE(t.kv_b.empty());
  EXPECT_EQ(t.embed_q.rows, 4 * 64);  // heads x kv_rank
  EXPECT_EQ(t.embed_q.cols, 64);
  EXPECT_EQ(t.unembed.rows, 4 * 32);
  EXPECT_EQ(t.unembed.cols, 64);
  EXPECT_EQ(t.embed_q.data.bytes, 4u * 64 * 64 / 2);
  EXPECT_EQ(t.embed_q.scales.bytes, 4u * 64 * 2);
}

TEST(DeepseekV3Tensors, NormsAreNeverShifted) {
  for (const char* name : {"dsv3-noqlora", "mlx-dsv3-embedq", "dsv3-halfsplit"}) {
    const ModelDescription model = describe_model(*open_source(fixture_path(name)));
    EXPECT_EQ(model.index.tensors.final_norm.shift, 0);
    for (const auto& layer : model.index.tensors.layers) EXPECT_EQ(layer.mixer_norm.shift, 0);
  }
}

TEST(DeepseekV3Tensors, MtpUsesTheTrunksEmbeddingAndHead) {
  const ModelDescription model = describe_model(*open_source(fixture_path("dsv3-halfsplit")));
  ASSERT_TRUE(model.index.tensors.mtp.has_value());
  EXPECT_EQ(model.index.tensors.mtp->fc.name, "model.layers.3.eh_proj.weight");
  EXPECT_EQ(model.index.tensors.mtp->final_norm.name, "model.layers.3.shared_head.norm.weight");
  EXPECT_EQ(model.index.tensors.head.name, "lm_head.weight");
  EXPECT_EQ(model.index.experts.size(), 3u);  // layers 1, 2 and the MTP layer
}

TEST(DeepseekV3Tensors, WhatIsMissingIsNamed) {
  for (const char* name :
       {"model.norm.weight", "layers.0.mlp.up_proj.weight", "layers.1.mlp.gate.weight",
        "layers.1.mlp.gate.e_score_correction_bias", "layers.2.self_attn.kv_b_proj.weight",
        "layers.2.self_attn.q_a_layernorm.weight", "layers.1.mlp.experts.7.down_proj.weight",
        "layers.2.mlp.shared_experts.gate_proj.weight", "layers.3.enorm.weight",
        "lm_head.weight"}) {
    EditedSource source(fixture_path("dsv3-halfsplit"));
    source.remove(name);
    expect_error(Errc::NotFound, {name, fixture_path("dsv3-halfsplit")},
                 [&] { describe_model(*source.build()); });
  }
}

TEST(DeepseekV3Tensors, WrongShapesAreRefused) {
  const std::pair<const char*, std::vector<std::int64_t>> wrong[] = {
      {"layers.1.self_attn.kv_a_proj_with_mqa.weight", {56, 52}},
      {"layers.1.self_attn.kv_b_proj.weight", {32, 200}},
      {"layers.1.mlp.gate.e_score_correction_bias", {4, 2}},
      {"layers.3.eh_proj.weight", {112, 56}},
  };
  for (const auto& [name, shape] : wrong) {
    EditedSource source(fixture_path("dsv3-halfsplit"));
    source.reshape(name, shape);
    expect_error(Errc::BadInput, {name, shape_text(shape)},
                 [&] { describe_model(*source.build()); });
  }
}

TEST(DeepseekV3Tensors, EverySizeIsChecked) {
  for (const char* key :
       {"hidden_size", "vocab_size", "num_attention_heads", "q_lora_rank", "kv_lora_rank",
        "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "intermediate_size",
        "moe_intermediate_size", "n_routed_experts", "n_shared_experts", "num_hidden_layers"}) {
    EditedSource source(fixture_path("dsv3-halfsplit"));
    Json& value = source.text()[key];
    value = value.get<int>() * 2;
    EXPECT_THROW(describe_model(*source.build()), Error) << key;
  }
}

}  // namespace
}  // namespace moeflux
