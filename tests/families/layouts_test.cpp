// Where the families of grouped-query attention find their tensors: in releases (an expert each),
// in exports of transformers that fuse the experts, and in conversions to MLX.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "families/family.h"
#include "families/shapes_source.h"
#include "support/expect_error.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::Shapes;

constexpr int kModel = 16, kVocab = 20, kHeads = 4, kKvHeads = 2, kHead = 6, kExperts = 3,
              kExpert = 5, kDense = 7;

enum class Form { Each, Fused, Mlx };

struct Layout {
  const char* model_type;
  Form form;
  std::string mlp = "mlp.";  // below a layer
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string correction = {};
};

std::vector<Layout> layouts() {
  const std::string sparse = "block_sparse_moe.", bias = "gate.e_score_correction_bias";
  return {
      {"mixtral", Form::Each, sparse, "w1", "w3", "w2"},
      {"mixtral", Form::Fused},
      {"mixtral", Form::Mlx, sparse},
      {"minimax_m2", Form::Each, sparse, "w1", "w3", "w2", "e_score_correction_bias"},
      {.model_type = "minimax_m2", .form = Form::Fused, .correction = "e_score_correction_bias"},
      {.model_type = "minimax_m2",
       .form = Form::Mlx,
       .mlp = sparse,
       .correction = "e_score_correction_bias"},
      {"olmoe", Form::Each},
      {"olmoe", Form::Fused},
      {"olmoe", Form::Mlx},
      {"qwen3_moe", Form::Each},
      {"qwen3_moe", Form::Fused},
      {"qwen3_moe", Form::Mlx},
      {.model_type = "glm4_moe", .form = Form::Each, .correction = bias},
      {.model_type = "glm4_moe", .form = Form::Fused, .correction = bias},
      {.model_type = "glm4_moe", .form = Form::Mlx, .correction = bias},
  };
}

Json config_of(const std::string& model_type) {
  Json config{{"model_type", model_type},      {"hidden_size", kModel},
              {"vocab_size", kVocab},          {"num_hidden_layers", 1},
              {"num_attention_heads", kHeads}, {"num_key_value_heads", kKvHeads},
              {"num_local_experts", kExperts}, {"num_experts_per_tok", 2},
              {"intermediate_size", kDense}};
  if (model_type != "olmoe") config["head_dim"] = kHead;
  if (model_type == "mixtral" || model_type == "olmoe" || model_type == "minimax_m2") {
    config["intermediate_size"] = kExpert;
  } else {
    config["moe_intermediate_size"] = kExpert;
  }
  if (model_type == "glm4_moe") {
    config["first_k_dense_replace"] = 0;
    config["partial_rotary_factor"] = 0.7;  // of 6: 4
  }
  return config;
}

// All but the experts. Layer 0 by its own prefix, so that the MTP layer can be another.
void add_attention(Shapes& s, const std::string& p, const std::string& model_type) {
  const int d_head = model_type == "olmoe" ? kModel / kHeads : kHead;
  const bool is_whole = model_type == "olmoe" || model_type == "minimax_m2";
  s.add(p + "input_layernorm.weight", {kModel})
      .add(p + "post_attention_layernorm.weight", {kModel})
      .add(p + "self_attn.q_proj.weight", {kHeads * d_head, kModel})
      .add(p + "self_attn.k_proj.weight", {kKvHeads * d_head, kModel})
      .add(p + "self_attn.v_proj.weight", {kKvHeads * d_head, kModel})
      .add(p + "self_attn.o_proj.weight", {kModel, kHeads * d_head});
  if (is_whole || model_type.starts_with("qwen3")) {
    s.add(p + "self_attn.q_norm.weight", {is_whole ? kHeads * d_head : d_head})
        .add(p + "self_attn.k_norm.weight", {is_whole ? kKvHeads * d_head : d_head});
  }
}

void add_trunk(Shapes& s) {
  s.add("model.embed_tokens.weight", {kVocab, kModel})
      .add("model.norm.weight", {kModel})
      .add("lm_head.weight", {kVocab, kModel});
}

void add_experts(Shapes& s, const std::string& p, const Layout& layout) {
  s.add(p + "gate.weight", {kExperts, kModel});
  if (!layout.correction.empty()) s.add(p + layout.correction, {kExperts});
  if (std::string(layout.model_type) == "glm4_moe") {
    s.add(p + "shared_experts.gate_proj.weight", {kExpert, kModel})
        .add(p + "shared_experts.up_proj.weight", {kExpert, kModel})
        .add(p + "shared_experts.down_proj.weight", {kModel, kExpert});
  }
  switch (layout.form) {
    case Form::Each:
      for (int e = 0; e < kExperts; ++e) {
        const std::string expert = fmt::format("{}experts.{}.", p, e);
        s.add(expert + layout.gate + ".weight", {kExpert, kModel})
            .add(expert + layout.up + ".weight", {kExpert, kModel})
            .add(expert + layout.down + ".weight", {kModel, kExpert});
      }
      break;
    case Form::Fused:
      s.add(p + "experts.gate_up_proj", {kExperts, 2 * kExpert, kModel})
          .add(p + "experts.down_proj", {kExperts, kModel, kExpert});
      break;
    case Form::Mlx:
      s.add(p + "switch_mlp.gate_proj.weight", {kExperts, kExpert, kModel})
          .add(p + "switch_mlp.up_proj.weight", {kExperts, kExpert, kModel})
          .add(p + "switch_mlp.down_proj.weight", {kExperts, kModel, kExpert});
      break;
  }
}

class Layouts : public testing::TestWithParam<Layout> {
 protected:
  void add_model(Shapes& shapes) const {
    add_trunk(shapes);
    add_attention(shapes, "model.layers.0.", GetParam().model_type);
    add_experts(shapes, "model.layers.0." + GetParam().mlp, GetParam());
  }
};

TEST_P(Layouts, EveryTensorIsFound) {
  const Layout& layout = GetParam();
  Shapes shapes(config_of(layout.model_type));
  add_model(shapes);
  const ModelDescription model = describe_model(shapes.source());
  EXPECT_EQ(model.family->name, layout.model_type);
  const std::string mlp = "model.layers.0." + layout.mlp;
  const auto& moe = std::get<Moe<Stored>>(model.index.tensors.layers.at(0).ffn);
  EXPECT_EQ(moe.router.weight.name, mlp + "gate.weight");
  EXPECT_EQ(moe.correction_bias.name, layout.correction.empty() ? "" : mlp + layout.correction);
  const ExpertBank& bank = model.index.experts.at(0);
  EXPECT_EQ(bank.gate.count(), kExperts);
  const StoredMatrix gate = bank.gate.at(2), up = bank.up.at(2), down = bank.down.at(2);
  EXPECT_EQ(gate.rows, kExpert);
  EXPECT_EQ(up.cols, kModel);
  EXPECT_EQ(down.rows, kModel);
  constexpr std::uint64_t kBytes = 4 * kExpert * kModel;
  if (layout.form == Form::Each) {
    EXPECT_EQ(gate.name, mlp + "experts.2." + layout.gate + ".weight");
    EXPECT_EQ(up.name, mlp + "experts.2." + layout.up + ".weight");
    EXPECT_EQ(down.name, mlp + "experts.2." + layout.down + ".weight");
  } else if (layout.form == Form::Fused) {  // gate rows first
    EXPECT_EQ(gate.data.offset, 4 * kBytes);
    EXPECT_EQ(up.data.offset, 5 * kBytes);
    EXPECT_EQ(down.data.offset, 2 * kBytes);
  } else {
    EXPECT_EQ(gate.name, mlp + "switch_mlp.gate_proj.weight");
    EXPECT_EQ(up.data.offset, 2 * kBytes);
  }
}

TEST_P(Layouts, WhatChangesTheResultIsRefused) {
  for (const std::string name :
       {"model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.sinks",
        "model.layers.0.post_mlp_layernorm.weight", "model.layers.0.self_attn.g_norm.weight",
        "lm_head.bias"}) {
    Shapes shapes(config_of(GetParam().model_type));
    add_model(shapes);
    shapes.add(name, {kModel});
    expect_error(Errc::Unsupported, {"\"" + name + "\""}, [&] { describe_model(shapes.source()); });
  }
}

TEST_P(Layouts, WhatIsMissingIsNamed) {
  const Layout& layout = GetParam();
  Shapes shapes(config_of(layout.model_type));
  add_trunk(shapes);
  add_experts(shapes, "model.layers.0." + layout.mlp, layout);
  expect_error(Errc::NotFound, {"model.layers.0.input_layernorm.weight"},
               [&] { describe_model(shapes.source()); });
}

std::string test_name(const testing::TestParamInfo<Layout>& test) {
  const char* forms[] = {"each", "fused", "mlx"};
  return fmt::format("{}_{}", test.param.model_type, forms[static_cast<int>(test.param.form)]);
}
INSTANTIATE_TEST_SUITE_P(Families, Layouts, testing::ValuesIn(layouts()), test_name);

TEST(OtherLayouts, TheMtpLayerOfGlm) {
  const Layout layout{
      .model_type = "glm4_moe", .form = Form::Each, .correction = "gate.e_score_correction_bias"};
  Shapes shapes(config_of(layout.model_type));
  add_trunk(shapes);
  for (const std::string p : {"model.layers.0.", "model.layers.1."}) {
    add_attention(shapes, p, layout.model_type);
    add_experts(shapes, p + "mlp.", layout);
  }
  const std::string p = "model.layers.1.";
  shapes.add(p + "eh_proj.weight", {kModel, 2 * kModel})
      .add(p + "enorm.weight", {kModel})
      .add(p + "hnorm.weight", {kModel})
      .add(p + "shared_head.norm.weight", {kModel})
      .add(p + "shared_head.head.weight", {kVocab, kModel})
      .add(p + "embed_tokens.weight", {kVocab, kModel});
  const ModelDescription model = describe_model(shapes.source());
  ASSERT_TRUE(model.index.tensors.mtp.has_value());
  EXPECT_EQ(model.index.tensors.mtp->fc.name, p + "eh_proj.weight");
  EXPECT_EQ(model.index.tensors.mtp->layer.ffn_norm.name, p + "post_attention_layernorm.weight");
  EXPECT_EQ(model.index.experts.size(), 2u);
}

void add_glm4(Shapes& shapes) {
  const std::string p = "model.layers.0.";
  add_trunk(shapes);
  add_attention(shapes, p, "glm4");
  shapes.add(p + "post_self_attn_layernorm.weight", {kModel})
      .add(p + "post_mlp_layernorm.weight", {kModel})
      .add(p + "mlp.gate_up_proj.weight", {2 * kDense, kModel})
      .add(p + "mlp.down_proj.weight", {kModel, kDense});
}

Json glm4_config() {
  Json config = config_of("glm4");
  config["attention_bias"] = false;
  config["partial_rotary_factor"] = 0.7;
  config.erase("num_local_experts");
  return config;
}

TEST(OtherLayouts, DenseGlm4) {
  Shapes shapes(glm4_config());
  add_glm4(shapes);
  const ModelDescription model = describe_model(shapes.source());
  const Layer<Stored>& layer = model.index.tensors.layers.at(0);
  EXPECT_EQ(layer.mixer_norm.name, "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(layer.mixer_post_norm.name, "model.layers.0.post_self_attn_layernorm.weight");
  EXPECT_EQ(layer.ffn_norm.name, "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(layer.ffn_post_norm.name, "model.layers.0.post_mlp_layernorm.weight");
  const auto& ffn = std::get<FeedForward<Stored>>(layer.ffn);
  EXPECT_EQ(ffn.gate.weight.data.offset, 0u);
  EXPECT_EQ(ffn.up.weight.data.offset, 4u * kDense * kModel);
  EXPECT_EQ(ffn.up.weight.rows, kDense);

  shapes.add("model.layers.0.mlp.gate_up_proj.bias", {2 * kDense});
  expect_error(Errc::Unsupported, {"gate_up_proj.bias"}, [&] { describe_model(shapes.source()); });
}

TEST(OtherLayouts, DenseQwen3IsTied) {
  Json config = config_of("qwen3");
  config["tie_word_embeddings"] = true;
  config.erase("num_local_experts");
  Shapes shapes(config);
  const std::string p = "model.layers.0.";
  shapes.add("model.embed_tokens.weight", {kVocab, kModel}).add("model.norm.weight", {kModel});
  add_attention(shapes, p, "qwen3");
  shapes.add(p + "mlp.gate_proj.weight", {kDense, kModel})
      .add(p + "mlp.up_proj.weight", {kDense, kModel})
      .add(p + "mlp.down_proj.weight", {kModel, kDense});
  const ModelDescription model = describe_model(shapes.source());
  EXPECT_TRUE(model.index.tensors.head.empty());
  EXPECT_TRUE(model.index.experts.empty());
}

}  // namespace
}  // namespace moeflux
