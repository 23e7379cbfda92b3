#include "families/qwen3_next/qwen3_next.h"

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

// Qwen3-Next-80B-A3B.
Json released() {
  return parse_json(R"({
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
    "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
    "decoder_sparse_step": 1, "eos_token_id": 151645, "full_attention_interval": 4, "head_dim": 256,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5120,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 262144,
    "mlp_only_layers": [], "moe_intermediate_size": 512, "norm_topk_prob": true,
    "num_attention_heads": 16, "num_experts": 512, "num_experts_per_tok": 10,
    "num_hidden_layers": 48, "num_key_value_heads": 2, "output_router_logits": false,
    "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 10000000, "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
    "use_sliding_window": false, "vocab_size": 151936
  })",
                    "test");
}

ModelConfig read(const Json& config) {
  return ConfigSource(config).read();
}
bool is_attention(const ModelConfig& config, std::size_t layer) {
  return std::holds_alternative<AttentionSpec>(config.layers.at(layer).mixer);
}
bool is_moe(const ModelConfig& config, std::size_t layer) {
  return std::holds_alternative<MoeSpec>(config.layers.at(layer).ffn);
}

TEST(Qwen3Next, ReleasedConfig) {
  const ModelConfig c = read(released());
  EXPECT_EQ(c.family, "qwen3_next");
  EXPECT_EQ(c.d_model, 2048);
  ASSERT_EQ(c.n_layers(), 48);
  for (const std::size_t i : {3, 7, 47}) EXPECT_TRUE(is_attention(c, i)) << i;
  for (const std::size_t i : {0, 1, 2, 46}) EXPECT_FALSE(is_attention(c, i)) << i;
  const auto& a = std::get<AttentionSpec>(c.layers[3].mixer);
  EXPECT_TRUE(a.has_output_gate);
  EXPECT_EQ(a.qk_norm, QkNorm::PerHead);
  EXPECT_FALSE(a.has_bias || a.has_out_bias);
  EXPECT_EQ(a.n_heads, 16);
  EXPECT_EQ(a.n_kv_heads, 2);
  EXPECT_EQ(a.rope.n_rot, 64);
  EXPECT_FLOAT_EQ(a.rope.inv_freq[16], static_cast<float>(std::pow(1e7, -0.5)));
  const auto& d = std::get<GatedDeltaSpec>(c.layers[0].mixer);
  EXPECT_EQ(d.n_key_heads, 16);
  EXPECT_EQ(d.n_value_heads, 32);
  EXPECT_EQ(d.conv_dim(), 8192);
  EXPECT_EQ(d.output_gate, GateActivation::Silu);
  const auto& m = std::get<MoeSpec>(c.layers[0].ffn);
  EXPECT_EQ(m.n_experts, 512);
  EXPECT_EQ(m.top_k, 10);
  EXPECT_EQ(m.d_expert, 512);
  EXPECT_EQ(m.d_shared, 512);
  EXPECT_TRUE(m.shared_is_gated);
  EXPECT_TRUE(m.router.normalize);
  EXPECT_FALSE(c.mtp.has_value());
}

TEST(Qwen3Next, MtpIsWhereItsTensorsAre) {
  const ModelConfig c = ConfigSource(released(), {"mtp.fc.weight"}).read();
  ASSERT_TRUE(c.mtp.has_value());
  EXPECT_TRUE(std::holds_alternative<AttentionSpec>(c.mtp->mixer));
  EXPECT_TRUE(std::holds_alternative<MoeSpec>(c.mtp->ffn));
}

TEST(Qwen3Next, DenseLayers) {
  Json config = released();
  config["mlp_only_layers"] = {1, 5, 99};
  ModelConfig c = read(config);
  EXPECT_FALSE(is_moe(c, 1) || is_moe(c, 5));
  EXPECT_TRUE(is_moe(c, 0) && is_moe(c, 2) && is_moe(c, 47));
  EXPECT_EQ(std::get<DenseFfnSpec>(c.layers[1].ffn).d_ff, 5120);

  config["decoder_sparse_step"] = 2;
  c = read(config);
  EXPECT_FALSE(is_moe(c, 0) || is_moe(c, 1) || is_moe(c, 46));
  EXPECT_TRUE(is_moe(c, 3) && is_moe(c, 47));
}

TEST(Qwen3Next, OtherSwitches) {
  Json config = released();
  config["norm_topk_prob"] = false;
  config["attention_bias"] = true;
  config["num_hidden_layers"] = 2;
  config["layer_types"] = {"full_attention", "linear_attention"};
  const ModelConfig c = read(config);
  EXPECT_TRUE(is_attention(c, 0));
  EXPECT_FALSE(is_attention(c, 1));
  const auto& a = std::get<AttentionSpec>(c.layers[0].mixer);
  EXPECT_TRUE(a.has_bias && a.has_out_bias);
  EXPECT_FALSE(std::get<MoeSpec>(c.layers[0].ffn).router.normalize);
}

TEST(Qwen3Next, WhatTheReferenceAssumes) {
  Json config = released();
  for (const char* key :
       {"head_dim", "partial_rotary_factor", "full_attention_interval", "norm_topk_prob",
        "decoder_sparse_step", "mlp_only_layers", "attention_bias", "linear_key_head_dim",
        "num_experts", "num_experts_per_tok"})
    config.erase(key);
  const ModelConfig c = read(config);
  const auto& a = std::get<AttentionSpec>(c.layers[3].mixer);
  EXPECT_EQ(a.d_head, 256);
  EXPECT_EQ(a.rope.n_rot, 64);
  EXPECT_EQ(std::get<GatedDeltaSpec>(c.layers[0].mixer).d_key, 128);
  const auto& m = std::get<MoeSpec>(c.layers[0].ffn);
  EXPECT_TRUE(m.router.normalize);
  EXPECT_EQ(m.n_experts, 512);
  EXPECT_EQ(m.top_k, 10);
}

TEST(Qwen3Next, Refusals) {
  const auto refused = [](const char* key, const Json& value, Errc code,
                          std::initializer_list<std::string_view> says) {
    Json config = released();
    config[key] = value;
    expect_error(code, says, [&] { read(config); });
  };
  refused("hidden_act", "gelu", Errc::Unsupported, {"hidden_act", "gelu"});
  refused("mlp_only_layers", "all", Errc::BadInput, {"mlp_only_layers"});
  refused("mlp_only_layers", Json::array({1.5}), Errc::BadInput, {"mlp_only_layers"});
  refused("decoder_sparse_step", 0, Errc::BadInput, {"decoder_sparse_step", "0"});
  refused("use_sliding_window", true, Errc::Unsupported, {"use_sliding_window"});
  refused("output_gate_type", "tanh", Errc::Unsupported, {"output_gate_type", "tanh"});
  refused("final_logit_softcapping", 30.0, Errc::Unsupported, {"final_logit_softcapping"});
}

// ---- tensors
// ---------------------------------------------------------------------------------------------

std::vector<std::int64_t> rows_of(const StoredMatrix& matrix) {
  std::vector<std::int64_t> rows;
  for (const RowRun& run : matrix.repack->rows) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      for (std::int64_t r = 0; r < run.take; ++r) rows.push_back(run.first + i * run.stride + r);
    }
  }
  return rows;
}

// By key head: query, key, values, gates; and b, a.
TEST(Qwen3NextTensors, FusedProjectionsArePulledApart) {
  const auto source = open_source(test::data_path("fixtures/qwen3_next-mtp"));
  const ModelDescription model = describe_model(*source);
  const auto& t = std::get<GatedDelta<Stored>>(model.index.tensors.layers.at(0).mixer);
  const GatedDeltaSpec& s = t.spec;
  const int shared = s.n_value_heads / s.n_key_heads, values = shared * s.d_value;
  const int group = 2 * s.d_key + 2 * values;
  std::vector<std::int64_t> qkv, z, b, a;
  const auto add = [&](std::vector<std::int64_t>& rows, int width, int first, int count) {
    for (int head = 0; head < s.n_key_heads; ++head) {
      for (int i = 0; i < count; ++i) rows.push_back(head * width + first + i);
    }
  };
  add(qkv, group, 0, s.d_key);
  add(qkv, group, s.d_key, s.d_key);
  add(qkv, group, 2 * s.d_key, values);
  add(z, group, 2 * s.d_key + values, values);
  add(b, 2 * shared, 0, shared);
  add(a, 2 * shared, shared, shared);
  EXPECT_EQ(rows_of(t.qkv), qkv);
  EXPECT_EQ(rows_of(t.z), z);
  EXPECT_EQ(rows_of(t.b), b);
  EXPECT_EQ(rows_of(t.a), a);
  EXPECT_TRUE(model.index.tensors.mtp.has_value());
}

TEST(Qwen3NextTensors, NormsAreFoldedByConvertersToMlx) {
  const auto released = open_source(test::data_path("fixtures/qwen3_next-mtp"));
  EXPECT_EQ(describe_model(*released).index.tensors.layers.at(0).mixer_norm.shift, 1);
  const auto mlx = open_source(test::data_path("fixtures/mlx-qwen3_next-4bit"));
  EXPECT_EQ(describe_model(*mlx).index.tensors.layers.at(0).mixer_norm.shift, 0);
}

TEST(Qwen3NextTensors, MissingOnesAreNamed) {
  for (const char* name : {"layers.0.linear_attn.in_proj_ba", "layers.0.mlp.shared_expert_gate"}) {
    EditedSource source(test::data_path("fixtures/qwen3_next-mtp"));
    source.remove(name);
    expect_error(Errc::NotFound, {name}, [&] { describe_model(*source.build()); });
  }
}

}  // namespace
}  // namespace moeflux
