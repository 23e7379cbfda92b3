#include "families/index_reader.h"

#include <gtest/gtest.h>

#include "families/shapes_source.h"
#include "families/unread_tensors.h"
#include "support/expect_error.h"

namespace moeflux {
namespace {

using test::Shapes;
using Shape = std::vector<std::int64_t>;

constexpr int kModel = 12, kHeads = 4, kKvHeads = 2, kHead = 6, kExperts = 3, kExpert = 5;

AttentionSpec plain_attention() {
  return {.n_heads = kHeads,
          .n_kv_heads = kKvHeads,
          .d_head = kHead,
          .rope = make_rope(1e4, kHead, false),
          .scale = 0.4f};
}

ModelConfig config_of(MixerSpec mixer, FfnSpec ffn) {
  return {.family = "test",
          .d_model = kModel,
          .n_vocab = 20,
          .context_length = 64,
          .norm_eps = 1e-6f,
          .layers = {{std::move(mixer), std::move(ffn)}},
          .mtp = {}};
}

void add_trunk(Shapes& shapes) {
  shapes.add("model.embed_tokens.weight", {20, kModel})
      .add("model.norm.weight", {kModel})
      .add("lm_head.weight", {20, kModel})
      .add("model.layers.0.input_layernorm.weight", {kModel})
      .add("model.layers.0.post_attention_layernorm.weight", {kModel});
}

void add_attention(Shapes& shapes) {
  const std::string p = "model.layers.0.self_attn.";
  shapes.add(p + "q_proj.weight", {kHeads * kHead, kModel})
      .add(p + "k_proj.weight", {kKvHeads * kHead, kModel})
      .add(p + "v_proj.weight", {kKvHeads * kHead, kModel})
      .add(p + "o_proj.weight", {kModel, kHeads * kHead});
}

void add_dense(Shapes& shapes) {
  const std::string p = "model.layers.0.mlp.";
  shapes.add(p + "gate_proj.weight", {7, kModel})
      .add(p + "up_proj.weight", {7, kModel})
      .add(p + "down_proj.weight", {kModel, 7});
}

// Stacked experts below `form`, and a router.
void add_experts(Shapes& shapes, const std::string& form) {
  const std::string p = "model.layers.0.mlp.";
  shapes.add(p + "gate.weight", {kExperts, kModel})
      .add(p + form + "gate_proj.weight", {kExperts, kExpert, kModel})
      .add(p + form + "up_proj.weight", {kExperts, kExpert, kModel})
      .add(p + form + "down_proj.weight", {kExperts, kModel, kExpert});
}

TEST(IndexReader, PlainAttentionNeedsNeitherNormsNorBiases) {
  Shapes shapes;
  add_trunk(shapes);
  add_attention(shapes);
  add_dense(shapes);
  const ModelConfig config = config_of(plain_attention(), DenseFfnSpec{.d_ff = 7});
  const ModelIndex index = IndexReader(shapes.source(), config, {}).read(/*head_is_tied=*/false);
  const auto& attention = std::get<Attention<Stored>>(index.tensors.layers.at(0).mixer);
  EXPECT_EQ(attention.spec.n_heads, kHeads);
  EXPECT_EQ(attention.spec.rope.n_rot, kHead);
  EXPECT_EQ(attention.q.weight.rows, kHeads * kHead);
  EXPECT_TRUE(attention.q.bias.empty() && attention.o.bias.empty());
  EXPECT_TRUE(attention.q_norm.empty() && attention.k_norm.empty() && attention.sinks.empty());
  const auto& ffn = std::get<FeedForward<Stored>>(index.tensors.layers.at(0).ffn);
  EXPECT_EQ(ffn.spec.d_ff, 7);
  EXPECT_EQ(ffn.down.weight.cols, 7);
  EXPECT_TRUE(ffn.down.bias.empty());
  EXPECT_EQ(index.tensors.head.name, "lm_head.weight");
  EXPECT_TRUE(IndexReader(shapes.source(), config, {}).read(true).tensors.head.empty());
}

TEST(IndexReader, OptionsOfAttention) {
  Shapes shapes;
  add_trunk(shapes);
  add_attention(shapes);
  add_dense(shapes);
  const std::string p = "model.layers.0.self_attn.";
  shapes.add(p + "q_proj.bias", {kHeads * kHead})
      .add(p + "k_proj.bias", {kKvHeads * kHead})
      .add(p + "v_proj.bias", {kKvHeads * kHead})
      .add(p + "o_proj.bias", {kModel})
      .add(p + "q_norm.weight", {kHeads * kHead})
      .add(p + "k_norm.weight", {kKvHeads * kHead})
      .add(p + "sinks", {kHeads});
  AttentionSpec spec = plain_attention();
  spec.qk_norm = QkNorm::WholeRow;
  spec.has_bias = spec.has_out_bias = spec.has_sinks = true;
  const ModelConfig config = config_of(spec, DenseFfnSpec{.d_ff = 7});
  const ModelIndex index = IndexReader(shapes.source(), config, {}).read(false);
  const auto& attention = std::get<Attention<Stored>>(index.tensors.layers.at(0).mixer);
  EXPECT_EQ(attention.q.bias.size, kHeads * kHead);
  EXPECT_EQ(attention.k.bias.name, p + "k_proj.bias");
  EXPECT_EQ(attention.v.bias.name, p + "v_proj.bias");
  EXPECT_EQ(attention.o.bias.size, kModel);
  EXPECT_EQ(attention.q_norm.size, kHeads * kHead);
  EXPECT_EQ(attention.k_norm.size, kKvHeads * kHead);
  EXPECT_EQ(attention.sinks.size, kHeads);
  EXPECT_NO_THROW(refuse_unread_tensors(shapes.source(), index));

  // Each of them is refused where the config does not speak of it.
  spec.has_out_bias = false;
  const ModelConfig silent = config_of(spec, DenseFfnSpec{.d_ff = 7});
  const ModelIndex without = IndexReader(shapes.source(), silent, {}).read(false);
  test::expect_error(Errc::Unsupported, {"o_proj.bias"},
                     [&] { refuse_unread_tensors(shapes.source(), without); });
}

TEST(IndexReader, WhatAnOptionNeedsMustBeThere) {
  Shapes shapes;
  add_trunk(shapes);
  add_attention(shapes);
  add_dense(shapes);
  const auto expect_missing = [&](const AttentionSpec& spec, const char* name) {
    const ModelConfig config = config_of(spec, DenseFfnSpec{.d_ff = 7});
    test::expect_error(Errc::NotFound, {name},
                       [&] { IndexReader(shapes.source(), config, {}).read(false); });
  };
  AttentionSpec spec = plain_attention();
  spec.has_bias = true;
  expect_missing(spec, "q_proj.bias");
  spec = plain_attention();
  spec.has_out_bias = true;
  expect_missing(spec, "o_proj.bias");
  spec = plain_attention();
  spec.qk_norm = QkNorm::PerHead;
  expect_missing(spec, "q_norm.weight");
  spec = plain_attention();
  spec.has_sinks = true;
  expect_missing(spec, "sinks");
}

TEST(IndexReader, BiasesOfRouterAndExperts) {
  for (const std::string form : {"switch_mlp.", "experts."}) {
    Shapes shapes;
    add_trunk(shapes);
    add_attention(shapes);
    add_experts(shapes, form);
    const std::string p = "model.layers.0.mlp.";
    shapes.add(p + "gate.bias", {kExperts})
        .add(p + form + "gate_proj.bias", {kExperts, kExpert})
        .add(p + form + "up_proj.bias", {kExperts, kExpert})
        .add(p + form + "down_proj.bias", {kExperts, kModel});
    const MoeSpec spec{.n_experts = kExperts,
                       .top_k = 2,
                       .d_expert = kExpert,
                       .router = {.scores_chosen = true, .has_bias = true},
                       .activation = {FfnActivation::Kind::ClampedSwiglu, 1.702f, 7},
                       .has_expert_bias = true};
    const ModelConfig config = config_of(plain_attention(), spec);
    const ModelIndex index = IndexReader(shapes.source(), config, {}).read(false);
    const auto& moe = std::get<Moe<Stored>>(index.tensors.layers.at(0).ffn);
    EXPECT_EQ(moe.spec.activation, spec.activation);
    EXPECT_EQ(moe.router.bias.size, kExperts);
    EXPECT_EQ(moe.gate_bias.name, p + form + "gate_proj.bias");
    EXPECT_EQ(moe.gate_bias.size, kExperts * kExpert);
    EXPECT_EQ(moe.up_bias.size, kExperts * kExpert);
    EXPECT_EQ(moe.down_bias.size, kExperts * kModel);
    EXPECT_EQ(moe.bank, 0);
    EXPECT_TRUE(moe.shared.gate.weight.empty() && moe.correction_bias.empty());
    EXPECT_NO_THROW(refuse_unread_tensors(shapes.source(), index));
  }
}

TEST(IndexReader, SharedExpertHasTheActivationOfTheOthers) {
  Shapes shapes;
  add_trunk(shapes);
  add_attention(shapes);
  add_experts(shapes, "switch_mlp.");
  const std::string p = "model.layers.0.mlp.shared_expert.";
  shapes.add(p + "gate_proj.weight", {8, kModel})
      .add(p + "up_proj.weight", {8, kModel})
      .add(p + "down_proj.weight", {kModel, 8});
  const MoeSpec spec{.n_experts = kExperts,
                     .top_k = 2,
                     .d_expert = kExpert,
                     .activation = {FfnActivation::Kind::Gelu},
                     .d_shared = 8};
  const ModelConfig config = config_of(plain_attention(), spec);
  const ModelIndex index = IndexReader(shapes.source(), config, {}).read(false);
  const auto& moe = std::get<Moe<Stored>>(index.tensors.layers.at(0).ffn);
  EXPECT_EQ(moe.shared.spec.d_ff, 8);
  EXPECT_EQ(moe.shared.spec.activation, spec.activation);
  EXPECT_TRUE(moe.shared_gate.empty());
}

TEST(IndexReader, NamesAreData) {
  Shapes shapes;
  add_trunk(shapes);
  add_attention(shapes);
  const std::string p = "model.layers.0.block_sparse_moe.";
  shapes.add(p + "router.weight", {kExperts, kModel}).add(p + "correction", {kExperts});
  for (int e = 0; e < kExperts; ++e) {
    shapes.add(fmt::format("{}experts.{}.w1.weight", p, e), {kExpert, kModel})
        .add(fmt::format("{}experts.{}.w3.weight", p, e), {kExpert, kModel})
        .add(fmt::format("{}experts.{}.w2.weight", p, e), {kModel, kExpert});
  }
  TensorNames names;
  names.mlp = "block_sparse_moe.";
  names.router = "router";
  names.correction_bias = "correction";
  names.gate = "w1", names.up = "w3", names.down = "w2";
  const MoeSpec spec{.n_experts = kExperts,
                     .top_k = 2,
                     .d_expert = kExpert,
                     .router = {.has_correction_bias = true}};
  const ModelConfig config = config_of(plain_attention(), spec);
  const ModelIndex index = IndexReader(shapes.source(), config, names).read(false);
  const auto& moe = std::get<Moe<Stored>>(index.tensors.layers.at(0).ffn);
  EXPECT_EQ(moe.router.weight.name, p + "router.weight");
  EXPECT_EQ(moe.correction_bias.name, p + "correction");
  EXPECT_EQ(index.experts.at(0).up.at(2).name, p + "experts.2.w3.weight");
  EXPECT_EQ(index.experts.at(0).down.at(1).name, p + "experts.1.w2.weight");
}

}  // namespace
}  // namespace moeflux
