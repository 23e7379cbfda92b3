#include "families/qwen3_5_moe/qwen3_5_moe.h"

#include <cmath>

#include <gtest/gtest.h>

#include "families/config_source.h"
#include "families/released_configs.h"
#include "source/tensor_lookup.h"
#include "support/edited_source.h"
#include "support/expect_error.h"
#include "support/loaded_model.h"

namespace moeflux {
namespace {

using test::ConfigSource;
using test::EditedSource;
using test::expect_error;
using test::fixture_path;

Json released() {
  return parse_json(test::kQwen35B, "test");
}

int count_attention(const ModelConfig& config) {
  int n = 0;
  for (const LayerSpec& layer : config.layers)
    n += std::holds_alternative<AttentionSpec>(layer.mixer);
  return n;
}

// ---- config
// ---------------------------------------------------------------------------------------------

TEST(Qwen35Moe, ReleasedConfig) {
  const ModelConfig c = ConfigSource(released()).read();
  EXPECT_EQ(c.family, "qwen3_5_moe");
  EXPECT_EQ(c.d_model, 2048);
  EXPECT_EQ(c.n_vocab, 248320);
  EXPECT_EQ(c.context_length, 262144);
  EXPECT_EQ(c.norm_eps, 1e-6f);
  ASSERT_EQ(c.n_layers(), 40);
  EXPECT_EQ(count_attention(c), 10);
  for (const int i : {3, 7, 39})
    EXPECT_TRUE(std::holds_alternative<AttentionSpec>(c.layers[i].mixer)) << i;
  for (const int i : {0, 1, 2, 4, 38})
    EXPECT_TRUE(std::holds_alternative<GatedDeltaSpec>(c.layers[i].mixer)) << i;

  const auto& a = std::get<AttentionSpec>(c.layers[3].mixer);
  EXPECT_TRUE(a.has_output_gate);
  EXPECT_EQ(a.qk_norm, QkNorm::PerHead);
  EXPECT_FALSE(a.has_bias || a.has_out_bias || a.has_sinks);
  EXPECT_EQ(a.window, 0);
  EXPECT_EQ(a.n_heads, 16);
  EXPECT_EQ(a.n_kv_heads, 2);
  EXPECT_EQ(a.d_head, 256);
  EXPECT_EQ(a.scale, 1.0f / 16);
  EXPECT_EQ(a.rope.n_rot, 64);
  EXPECT_FALSE(a.rope.interleaved);
  EXPECT_EQ(a.rope.magnitude, 1.0f);
  EXPECT_FLOAT_EQ(a.rope.inv_freq[16], static_cast<float>(std::pow(1e7, -0.5)));

  const auto& d = std::get<GatedDeltaSpec>(c.layers[0].mixer);
  EXPECT_EQ(d.n_key_heads, 16);
  EXPECT_EQ(d.n_value_heads, 32);
  EXPECT_EQ(d.d_key, 128);
  EXPECT_EQ(d.d_value, 128);
  EXPECT_EQ(d.conv_width, 4);
  EXPECT_EQ(d.conv_dim(), 8192);
  EXPECT_EQ(d.output_gate, GateActivation::Silu);

  const auto& m = std::get<MoeSpec>(c.layers[0].ffn);
  EXPECT_EQ(m.n_experts, 256);
  EXPECT_EQ(m.top_k, 8);
  EXPECT_EQ(m.d_expert, 512);
  EXPECT_EQ(m.d_shared, 512);
  EXPECT_TRUE(m.shared_is_gated);
  EXPECT_EQ(m.router.scoring, RouterScoring::Softmax);
  EXPECT_TRUE(m.router.normalize);
  EXPECT_FALSE(m.router.has_correction_bias);
  EXPECT_EQ(m.router.n_groups, 1);
  EXPECT_EQ(m.router.scale, 1.0f);
  EXPECT_FALSE(c.mtp.has_value());  // announced, but no tensors
}

TEST(Qwen35Moe, FlatConfig) {
  const ModelConfig c = ConfigSource(parse_json(test::kQwenFlat, "test")).read();
  EXPECT_EQ(c.d_model, 8192);
  EXPECT_EQ(c.n_layers(), 92);
  EXPECT_EQ(count_attention(c), 23);
  const auto& a = std::get<AttentionSpec>(c.layers[91].mixer);
  EXPECT_EQ(a.n_heads, 64);
  EXPECT_EQ(a.n_kv_heads, 4);
  const auto& d = std::get<GatedDeltaSpec>(c.layers[0].mixer);
  EXPECT_EQ(d.n_value_heads, 128);
  EXPECT_EQ(d.output_gate, GateActivation::Silu);  // swish
  EXPECT_EQ(std::get<MoeSpec>(c.layers[0].ffn).top_k, 10);
}

TEST(Qwen35Moe, RopeFieldsWhereverExportersPutThem) {
  const auto n_rot_and_theta = [](const Json& config) {
    const ModelConfig c = ConfigSource(config).read();
    const RopeSpec& rope = std::get<AttentionSpec>(c.layers[3].mixer).rope;
    return std::pair(rope.n_rot, std::round(std::pow(rope.inv_freq[1], -rope.n_rot / 2.0)));
  };
  Json flattened = released();
  Json& text = flattened["text_config"];
  text.erase("rope_parameters");
  text["rope_theta"] = 1e6;
  text["rope_type"] = "default";
  text["mrope_section"] = {11, 11, 10};
  EXPECT_EQ(n_rot_and_theta(flattened).first, 64);
  EXPECT_NEAR(n_rot_and_theta(flattened).second, 1e6, 10);

  Json legacy = flattened;
  legacy["text_config"].erase("rope_type");
  legacy["text_config"]["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  const ModelConfig c = ConfigSource(legacy).read();
  EXPECT_EQ(std::get<AttentionSpec>(c.layers[3].mixer).rope.inv_freq[0], 0.5f);

  Json no_share = released();
  no_share["text_config"].erase("partial_rotary_factor");
  no_share["text_config"]["rope_parameters"].erase("partial_rotary_factor");
  EXPECT_EQ(n_rot_and_theta(no_share).first, 64);  // a quarter when nothing is said
}

TEST(Qwen35Moe, YarnForLongContexts) {
  Json config = released();
  config["text_config"]["rope_parameters"].update(
      {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 262144}});
  const ModelConfig c = ConfigSource(config).read();
  const auto& a = std::get<AttentionSpec>(c.layers[3].mixer);
  EXPECT_NEAR(a.rope.magnitude, 1.1386294, 1e-6);
  EXPECT_EQ(a.scale, 1.0f / 16);  // of the softmax: unchanged in this family
  EXPECT_EQ(a.rope.inv_freq[0], 1.0f);
  EXPECT_FLOAT_EQ(a.rope.inv_freq[31], static_cast<float>(std::pow(1e7, -31.0 / 32) / 4));
}

TEST(Qwen35Moe, LayerTypesAreAuthoritative) {
  Json config = released();
  Json& text = config["text_config"];
  text["num_hidden_layers"] = 3;
  text["layer_types"] = {"full_attention", "linear_attention", "full_attention"};
  const ModelConfig c = ConfigSource(config).read();
  EXPECT_TRUE(std::holds_alternative<AttentionSpec>(c.layers[0].mixer));
  EXPECT_TRUE(std::holds_alternative<GatedDeltaSpec>(c.layers[1].mixer));
  EXPECT_TRUE(std::holds_alternative<AttentionSpec>(c.layers[2].mixer));
}

TEST(Qwen35Moe, OutputGate) {
  const auto gate = [](const char* type) {
    Json config = released();
    config["text_config"]["output_gate_type"] = type;
    return std::get<GatedDeltaSpec>(ConfigSource(config).read().layers[0].mixer).output_gate;
  };
  EXPECT_EQ(gate("silu"), GateActivation::Silu);
  EXPECT_EQ(gate("swish"), GateActivation::Silu);
  EXPECT_EQ(gate("sigmoid"), GateActivation::Sigmoid);
}

TEST(Qwen35Moe, DenseSiblings) {
  Json config = parse_json(test::kQwenFlat, "test");
  config["model_type"] = "qwen3_5_text";
  for (const char* key : {"num_experts", "num_experts_per_tok", "moe_intermediate_size"})
    config.erase(key);
  config["intermediate_size"] = 25600;
  const ModelConfig c = ConfigSource(config).read();
  EXPECT_EQ(std::get<DenseFfnSpec>(c.layers[0].ffn).d_ff, 25600);
}

TEST(Qwen35Moe, MtpIsWhereItsTensorsAre) {
  for (const char* prefix :
       {"mtp.", "model.mtp.", "language_model.mtp.", "model.language_model.mtp."}) {
    const ModelConfig c = ConfigSource(released(), {std::string(prefix) + "fc.weight"}).read();
    ASSERT_TRUE(c.mtp.has_value()) << prefix;
    EXPECT_TRUE(std::holds_alternative<AttentionSpec>(c.mtp->mixer));
    EXPECT_TRUE(std::holds_alternative<MoeSpec>(c.mtp->ffn));
  }
}

// ---- conventions of norms
// ---------------------------------------------------------------------------------

float mixer_norm_shift(const ModelSource& source) {
  return describe_model(source).index.tensors.layers[0].mixer_norm.shift;
}

TEST(Qwen35MoeNorms, TheShapeOfConv1dDecides) {
  EditedSource hf(fixture_path("qwen-ratio3"));  // conv1d [C, 1, 3]
  const ModelDescription raw = describe_model(*hf.build());
  const ModelTensors<Stored>& t = raw.index.tensors;
  EXPECT_EQ(t.layers[0].mixer_norm.shift, 1);
  EXPECT_EQ(t.layers[0].ffn_norm.shift, 1);
  EXPECT_EQ(t.final_norm.shift, 1);
  EXPECT_EQ(std::get<Attention<Stored>>(t.layers[0].mixer).q_norm.shift, 1);
  EXPECT_EQ(std::get<Attention<Stored>>(t.layers[0].mixer).k_norm.shift, 1);
  EXPECT_EQ(std::get<GatedDelta<Stored>>(t.layers[1].mixer).norm.shift,
            0);  // never zero-centred
  ASSERT_TRUE(t.mtp.has_value());
  EXPECT_EQ(t.mtp->embed_norm.shift, 1);
  EXPECT_EQ(t.mtp->final_norm.shift, 1);
  EXPECT_EQ(t.mtp->layer.mixer_norm.shift, 1);

  EditedSource mlx(fixture_path("qwen-ratio3"));
  mlx.reshape("conv1d", {2 * 2 * 16 + 6 * 24, 3, 1});
  EXPECT_EQ(mixer_norm_shift(*mlx.build()), 0);
}

TEST(Qwen35MoeNorms, EachMtpNormSpeaksForItself) {
  // In this checkpoint the converter shifted all norms but the three at the top of the MTP head.
  const auto source = open_source(fixture_path("mlx-qwen-mixed"));
  const ModelDescription model = describe_model(*source);
  EXPECT_EQ(model.index.tensors.layers[0].mixer_norm.shift, 0);
  const MtpTensors<Stored>& mtp = *model.index.tensors.mtp;
  EXPECT_EQ(mtp.embed_norm.shift, 1);
  EXPECT_EQ(mtp.hidden_norm.shift, 1);
  EXPECT_EQ(mtp.final_norm.shift, 1);
  EXPECT_EQ(mtp.layer.mixer_norm.shift, 0);
  EXPECT_EQ(mtp.layer.ffn_norm.shift, 0);
  const auto& attention = std::get<Attention<Stored>>(mtp.layer.mixer);
  EXPECT_EQ(attention.q_norm.shift, 0);
  EXPECT_EQ(attention.k_norm.shift, 0);
}

TEST(Qwen35MoeNorms, WithoutConv1dTheMeanDecides) {
  EditedSource raw(fixture_path("qwen-ratio3"));  // layer 0 is full attention
  raw.text()["num_hidden_layers"] = 1;
  raw.text()["layer_types"] = {"full_attention"};
  EXPECT_EQ(mixer_norm_shift(*raw.build()), 1);

  EditedSource folded(fixture_path("mlx-qwen-mixed"));  // layer 1 is
  folded.text()["num_hidden_layers"] = 1;
  folded.text()["layer_types"] = {"full_attention"};
  folded.remove("model.layers.0.").rename("model.layers.1.", "model.layers.0.");
  EXPECT_EQ(mixer_norm_shift(*folded.build()), 0);
}

TEST(Qwen35MoeNorms, AConv1dOfAnotherShapeIsRefused) {
  EditedSource source(fixture_path("qwen-ratio3"));
  source.reshape("layers.1.linear_attn.conv1d", {3, 1, 2 * 2 * 16 + 6 * 24});
  expect_error(Errc::BadInput, {"conv1d.weight", "[3, 1, 208]", "[208, 1, 3]"},
               [&] { describe_model(*source.build()); });
  EditedSource missing(fixture_path("qwen-ratio3"));
  missing.remove("conv1d");
  expect_error(Errc::NotFound, {"conv1d.weight"}, [&] { describe_model(*missing.build()); });
}

// ---- tensors
// ----------------------------------------------------------------------------------------------

TEST(Qwen35MoeTensors, WrapperPrefixAndSkippedVision) {
  const auto source = open_source(fixture_path("qwen-fp8"));
  const ModelDescription model = describe_model(*source);
  EXPECT_EQ(model.index.tensors.embed.name, "model.language_model.embed_tokens.weight");
  EXPECT_EQ(model.index.tensors.head.name, "lm_head.weight");
  EXPECT_EQ(model.index.experts.size(), 2u);
}

TEST(Qwen35MoeTensors, TiedHead) {
  const ModelDescription model = describe_model(*open_source(fixture_path("qwen-onekv")));
  EXPECT_TRUE(model.index.tensors.head.empty());
  EditedSource untied(fixture_path("qwen-onekv"));
  untied.text()["tie_word_embeddings"] = false;
  expect_error(Errc::NotFound, {"lm_head.weight"}, [&] { describe_model(*untied.build()); });
  untied.text().erase("tie_word_embeddings");  // said by the wrapper
  EXPECT_TRUE(describe_model(*untied.build()).index.tensors.head.empty());
}

TEST(Qwen35MoeTensors, WhatIsMissingIsNamed) {
  for (const char* name :
       {"model.norm.weight", "layers.3.self_attn.q_proj.weight", "layers.1.linear_attn.A_log",
        "layers.2.mlp.experts.4.up_proj.weight", "layers.2.mlp.gate.weight", "lm_head.weight",
        "layers.0.mlp.shared_expert_gate.weight", "mtp.pre_fc_norm_hidden.weight",
        "embed_tokens.weight"}) {
    EditedSource source(fixture_path("qwen-ratio3"));
    source.remove(name);
    expect_error(Errc::NotFound, {name, fixture_path("qwen-ratio3")},
                 [&] { describe_model(*source.build()); });
  }
}

TEST(Qwen35MoeTensors, WrongShapesAreRefused) {
  const std::pair<const char*, std::vector<std::int64_t>> wrong[] = {
      {"layers.3.self_attn.q_proj.weight", {72, 288}},
      {"layers.1.linear_attn.dt_bias", {2, 3}},
      {"layers.1.linear_attn.in_proj_qkv.weight", {72, 208}},
      {"layers.2.mlp.experts.4.up_proj.weight", {72, 24}},
      {"model.embed_tokens.weight", {72, 272}},
      {"mtp.fc.weight", {144, 72}},
  };
  for (const auto& [name, shape] : wrong) {
    EditedSource source(fixture_path("qwen-ratio3"));
    source.reshape(name, shape);
    expect_error(Errc::BadInput, {name, shape_text(shape)},
                 [&] { describe_model(*source.build()); });
  }
}

TEST(Qwen35MoeTensors, BlocksHoldTheSpecsOfTheConfig) {
  const ModelDescription model = describe_model(*open_source(fixture_path("qwen-ratio3")));
  const auto& attention = std::get<Attention<Stored>>(model.index.tensors.layers[0].mixer).spec;
  const auto& wanted = std::get<AttentionSpec>(model.config.layers[0].mixer);
  EXPECT_EQ(attention.n_heads, wanted.n_heads);
  EXPECT_EQ(attention.qk_norm, QkNorm::PerHead);
  EXPECT_EQ(attention.rope.inv_freq, wanted.rope.inv_freq);
  const auto& delta = std::get<GatedDelta<Stored>>(model.index.tensors.layers[1].mixer).spec;
  EXPECT_EQ(delta.conv_dim(), std::get<GatedDeltaSpec>(model.config.layers[1].mixer).conv_dim());
  const auto& moe = std::get<Moe<Stored>>(model.index.tensors.mtp->layer.ffn);
  EXPECT_EQ(moe.spec.n_experts, std::get<MoeSpec>(model.config.mtp->ffn).n_experts);
  EXPECT_EQ(moe.shared.spec.d_ff, moe.spec.d_shared);
}

// A config that is larger than the tensors, in every size it has.
TEST(Qwen35MoeTensors, EverySizeIsChecked) {
  for (const char* key :
       {"hidden_size", "vocab_size", "head_dim", "num_experts", "moe_intermediate_size",
        "shared_expert_intermediate_size", "linear_conv_kernel_dim", "linear_key_head_dim",
        "linear_value_head_dim", "num_hidden_layers"}) {
    EditedSource source(fixture_path("qwen-ratio3"));
    Json& value = source.text()[key];
    value = value.get<int>() * 2;
    if (std::string(key) == "num_hidden_layers") source.text().erase("layer_types");
    EXPECT_THROW(describe_model(*source.build()), Error) << key;
  }
}

}  // namespace
}  // namespace moeflux
