// The families of grouped-query attention and plain feed-forwards or experts: what each reads out
// of its released config, and what it assumes for keys that are missing.
#include <cmath>

#include <gtest/gtest.h>

#include "families/config_source.h"
#include "families/released_configs.h"
#include "support/expect_error.h"

namespace moeflux {
namespace {

using test::ConfigSource;
using test::expect_error;

const std::vector<std::string> kEmbedding{"model.embed_tokens.weight"};

ModelConfig read(const Json& config) {
  return ConfigSource(config, kEmbedding).read();
}
ModelConfig read(const char* text) {
  return read(parse_json(text, "test"));
}
// Of a config that says nothing but its type.
ModelConfig assumed(const char* model_type) {
  return read(Json{{"model_type", model_type}});
}
const AttentionSpec& attention(const ModelConfig& config, int layer = 0) {
  return std::get<AttentionSpec>(config.layers.at(static_cast<std::size_t>(layer)).mixer);
}
const MoeSpec& moe(const ModelConfig& config, int layer = 0) {
  return std::get<MoeSpec>(config.layers.at(static_cast<std::size_t>(layer)).ffn);
}
int d_ff(const ModelConfig& config, int layer = 0) {
  return std::get<DenseFfnSpec>(config.layers.at(static_cast<std::size_t>(layer)).ffn).d_ff;
}

struct Sizes {
  int d_model, n_vocab, n_layers, context;
  float eps;
};
void expect_sizes(const ModelConfig& c, const Sizes& want) {
  EXPECT_EQ(c.d_model, want.d_model);
  EXPECT_EQ(c.n_vocab, want.n_vocab);
  EXPECT_EQ(c.n_layers(), want.n_layers);
  EXPECT_EQ(c.context_length, want.context);
  EXPECT_FLOAT_EQ(c.norm_eps, want.eps);
}

struct Heads {
  int n, n_kv, d, n_rot;
  double theta;
};
void expect_heads(const AttentionSpec& a, const Heads& want) {
  EXPECT_EQ(a.n_heads, want.n);
  EXPECT_EQ(a.n_kv_heads, want.n_kv);
  EXPECT_EQ(a.d_head, want.d);
  EXPECT_FLOAT_EQ(a.scale, static_cast<float>(1 / std::sqrt(want.d)));
  EXPECT_EQ(a.rope.n_rot, want.n_rot);
  EXPECT_FLOAT_EQ(a.rope.inv_freq.at(1),
                  static_cast<float>(std::pow(want.theta, -2.0 / want.n_rot)));
  EXPECT_FALSE(a.has_sinks || a.has_output_gate);
}

void expect_experts(const MoeSpec& m, int n, int top_k, int d_expert) {
  EXPECT_EQ(m.n_experts, n);
  EXPECT_EQ(m.top_k, top_k);
  EXPECT_EQ(m.d_expert, d_expert);
  EXPECT_EQ(m.activation, FfnActivation{});
  EXPECT_FALSE(m.has_expert_bias || m.router.has_bias || m.router.scores_chosen);
}

// ---- llama

TEST(Llama, Released) {
  const ModelConfig c = read(test::kLlama31);
  EXPECT_EQ(c.family, "llama");
  expect_sizes(c, {4096, 128256, 32, 131072, 1e-5f});
  expect_heads(attention(c, 31), {32, 8, 128, 128, 5e5});
  EXPECT_FLOAT_EQ(attention(c).rope.inv_freq.back(),
                  static_cast<float>(std::pow(5e5, -126.0 / 128) / 8));
  EXPECT_EQ(attention(c).qk_norm, QkNorm::None);
  EXPECT_FALSE(attention(c).has_bias || attention(c).rope.interleaved);
  EXPECT_EQ(d_ff(c, 31), 14336);
}

TEST(Llama, Assumed) {
  const ModelConfig c = assumed("llama");
  expect_sizes(c, {4096, 32000, 32, 2048, 1e-6f});
  expect_heads(attention(c), {32, 32, 128, 128, 1e4});
  EXPECT_EQ(d_ff(c), 11008);
}

TEST(Llama, BiasesAndPairs) {
  Json config = parse_json(test::kLlama31, "test");
  config["attention_bias"] = true;
  config["rope_interleave"] = true;
  const ModelConfig c = read(config);
  EXPECT_TRUE(attention(c).has_bias && attention(c).has_out_bias);
  EXPECT_TRUE(attention(c).rope.interleaved);
}

// ---- mixtral

TEST(Mixtral, Released) {
  const ModelConfig c = read(test::kMixtral8x22B);
  EXPECT_EQ(c.family, "mixtral");
  expect_sizes(c, {6144, 32000, 56, 65536, 1e-5f});
  expect_heads(attention(c, 55), {48, 8, 128, 128, 1e6});
  EXPECT_EQ(attention(c).qk_norm, QkNorm::None);
  EXPECT_FALSE(attention(c).has_bias || attention(c).rope.interleaved);
  EXPECT_EQ(attention(c).window, 0);
  expect_experts(moe(c, 55), 8, 2, 16384);
  EXPECT_EQ(moe(c).router.scoring, RouterScoring::Softmax);
  EXPECT_TRUE(moe(c).router.normalize);
  EXPECT_FALSE(moe(c).router.has_correction_bias);
  EXPECT_EQ(moe(c).d_shared, 0);
}

TEST(Mixtral, Assumed) {
  const ModelConfig c = assumed("mixtral");
  expect_sizes(c, {4096, 32000, 32, 131072, 1e-5f});
  expect_heads(attention(c), {32, 8, 128, 128, 1e6});
  expect_experts(moe(c), 8, 2, 14336);
}

TEST(Mixtral, WindowAndHeadsOfTheirOwnSize) {
  Json config = parse_json(test::kMixtral8x22B, "test");
  config["sliding_window"] = 4096;
  config["head_dim"] = 96;
  config["num_key_value_heads"] = nullptr;
  const ModelConfig c = read(config);
  EXPECT_EQ(attention(c, 55).window, 4096);
  expect_heads(attention(c), {48, 48, 96, 96, 1e6});
}

// ---- olmoe

TEST(Olmoe, Released) {
  const ModelConfig c = read(test::kOlmoe7B);
  expect_sizes(c, {2048, 50304, 16, 4096, 1e-5f});
  expect_heads(attention(c), {16, 16, 128, 128, 1e4});
  EXPECT_EQ(attention(c).qk_norm, QkNorm::WholeRow);
  EXPECT_EQ(attention(c).qkv_limit, 0);
  EXPECT_FALSE(attention(c).has_bias || attention(c).has_out_bias);
  expect_experts(moe(c), 64, 8, 1024);
  EXPECT_EQ(moe(c).router.scoring, RouterScoring::Softmax);
  EXPECT_FALSE(moe(c).router.normalize);
}

TEST(Olmoe, Assumed) {
  const ModelConfig c = assumed("olmoe");
  expect_sizes(c, {2048, 50304, 16, 4096, 1e-5f});
  expect_heads(attention(c), {16, 16, 128, 128, 1e4});
  expect_experts(moe(c), 64, 8, 2048);
  EXPECT_FALSE(moe(c).router.normalize);
}

TEST(Olmoe, LimitBiasesAndNormalizedWeights) {
  Json config = parse_json(test::kOlmoe7B, "test");
  config["clip_qkv"] = 8;
  config["attention_bias"] = config["norm_topk_prob"] = true;
  const ModelConfig c = read(config);
  EXPECT_EQ(attention(c).qkv_limit, 8);
  EXPECT_TRUE(attention(c).has_bias && attention(c).has_out_bias);
  EXPECT_TRUE(moe(c).router.normalize);
}

// ---- qwen3_moe

TEST(Qwen3Moe, Released) {
  const ModelConfig c = read(test::kQwen3Coder480B);
  expect_sizes(c, {6144, 151936, 62, 262144, 1e-6f});
  expect_heads(attention(c), {96, 8, 128, 128, 1e7});
  EXPECT_EQ(attention(c).qk_norm, QkNorm::PerHead);
  EXPECT_EQ(attention(c).window, 0);
  expect_experts(moe(c, 61), 160, 8, 2560);
  EXPECT_TRUE(moe(c).router.normalize);
  EXPECT_EQ(moe(c).d_shared, 0);
}

TEST(Qwen3Moe, Assumed) {
  const ModelConfig c = assumed("qwen3_moe");
  expect_sizes(c, {2048, 151936, 24, 32768, 1e-6f});
  expect_heads(attention(c), {32, 4, 64, 64, 1e4});
  EXPECT_FALSE(attention(c).has_bias || attention(c).has_out_bias);
  EXPECT_EQ(attention(c).window, 0);  // which is there only with its switch
  expect_experts(moe(c), 128, 8, 768);
  EXPECT_FALSE(moe(c).router.normalize);
}

TEST(Qwen3Moe, DenseLayersWindowAndBiases) {
  Json config = parse_json(test::kQwen3Coder480B, "test");
  config["mlp_only_layers"] = {1, 7};
  config["decoder_sparse_step"] = 2;
  config["use_sliding_window"] = config["attention_bias"] = true;
  config["sliding_window"] = 512;
  const ModelConfig c = read(config);
  for (int i = 0; i < 62; ++i) {
    const bool is_moe = std::holds_alternative<MoeSpec>(c.layers[static_cast<std::size_t>(i)].ffn);
    EXPECT_EQ(is_moe, i % 2 == 1 && i != 1 && i != 7) << i;
    EXPECT_EQ(attention(c, i).window, 512) << i;
  }
  EXPECT_EQ(d_ff(c, 1), 8192);
  EXPECT_TRUE(attention(c).has_bias && attention(c).has_out_bias);
  config["num_experts"] = 0;
  EXPECT_EQ(d_ff(read(config), 5), 8192);
}

TEST(Qwen3Moe, NumberOfExpertsUnderItsOtherNames) {
  for (const char* key : {"num_local_experts", "n_routed_experts"}) {
    Json config = parse_json(test::kQwen3Coder480B, "test");
    config.erase("num_experts");
    config[key] = 96;
    EXPECT_EQ(moe(read(config)).n_experts, 96);
    config["num_experts"] = 160;
    expect_error(Errc::BadInput, {key, "96", "160"}, [&] { read(config); });
  }
}

// ---- qwen3

TEST(Qwen3, Released) {
  const ModelConfig c = read(test::kQwen3_4B);
  expect_sizes(c, {2560, 151936, 36, 40960, 1e-6f});
  expect_heads(attention(c), {32, 8, 128, 128, 1e6});
  EXPECT_EQ(attention(c).qk_norm, QkNorm::PerHead);
  EXPECT_EQ(d_ff(c, 35), 9728);
  EXPECT_EQ(attention(c, 35).window, 0);
}

TEST(Qwen3, Assumed) {
  const ModelConfig c = assumed("qwen3");
  expect_sizes(c, {4096, 151936, 32, 32768, 1e-6f});
  expect_heads(attention(c), {32, 32, 128, 128, 1e4});
  EXPECT_EQ(d_ff(c), 22016);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(attention(c, i).window, 0);
}

TEST(Qwen3, WindowOfUpperLayersOrAsListed) {
  Json config = parse_json(test::kQwen3_4B, "test");
  config["use_sliding_window"] = true;
  config["sliding_window"] = 100;
  config["max_window_layers"] = 30;
  const ModelConfig c = read(config);
  for (int i = 0; i < 36; ++i) EXPECT_EQ(attention(c, i).window, i >= 30 ? 100 : 0) << i;

  std::vector<std::string> types(36, "full_attention");
  types[3] = "sliding_attention";
  config["layer_types"] = types;
  const ModelConfig listed = read(config);
  for (int i = 0; i < 36; ++i) EXPECT_EQ(attention(listed, i).window, i == 3 ? 100 : 0) << i;
}

TEST(Qwen3, YarnAsTheModelCardHasIt) {
  Json config = parse_json(test::kQwen3_4B, "test");
  config["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  const AttentionSpec a = attention(read(config));
  EXPECT_FLOAT_EQ(a.rope.magnitude, static_cast<float>(0.1 * std::log(4.0) + 1));
  EXPECT_FLOAT_EQ(a.rope.inv_freq.back(), static_cast<float>(std::pow(1e6, -126.0 / 128) / 4));
}

// ---- glm4_moe

TEST(Glm4Moe, Released) {
  const ModelConfig c = read(test::kGlm45);
  expect_sizes(c, {5120, 151552, 92, 131072, 1e-5f});
  expect_heads(attention(c), {96, 8, 128, 64, 1e6});
  EXPECT_EQ(attention(c).qk_norm, QkNorm::PerHead);
  EXPECT_TRUE(attention(c).has_bias);
  EXPECT_FALSE(attention(c).has_out_bias || attention(c).rope.interleaved);
  EXPECT_EQ(d_ff(c, 2), 12288);
  expect_experts(moe(c, 3), 160, 8, 1536);
  EXPECT_EQ(moe(c, 3).d_shared, 1536);
  EXPECT_FALSE(moe(c, 3).shared_is_gated);
  const RouterSpec& router = moe(c, 91).router;
  EXPECT_EQ(router.scoring, RouterScoring::Sigmoid);
  EXPECT_TRUE(router.has_correction_bias && router.normalize);
  EXPECT_EQ(router.scale, 2.5f);
  EXPECT_FALSE(c.mtp.has_value());  // announced, but no tensors
}

TEST(Glm4Moe, Assumed) {
  const ModelConfig c = read(Json{{"model_type", "glm4_moe"}, {"head_dim", 128}});
  expect_sizes(c, {4096, 151552, 46, 131072, 1e-5f});
  expect_heads(attention(c), {96, 8, 128, 64, 1e4});
  EXPECT_EQ(d_ff(c, 0), 10944);
  expect_experts(moe(c, 1), 128, 8, 1408);
  EXPECT_EQ(moe(c, 1).d_shared, 1408);
  EXPECT_EQ(moe(c, 1).router.scale, 1);
  EXPECT_EQ(attention(c).qk_norm, QkNorm::None);
  EXPECT_FALSE(attention(c).has_bias);
}

TEST(Glm4Moe, MtpIsWhereItsTensorsAre) {
  const ModelConfig c =
      ConfigSource(parse_json(test::kGlm45, "test"),
                   {"model.embed_tokens.weight", "model.layers.92.eh_proj.weight"})
          .read();
  ASSERT_TRUE(c.mtp.has_value());
  EXPECT_EQ(std::get<MoeSpec>(c.mtp->ffn).n_experts, 160);
  EXPECT_EQ(std::get<AttentionSpec>(c.mtp->mixer).rope.n_rot, 64);
}

TEST(Glm4Moe, GroupsAndTheShareOfAHeadInItsNewPlace) {
  Json config = parse_json(test::kGlm45, "test");
  config["n_group"] = 8;
  config["topk_group"] = 4;
  for (const char* key : {"partial_rotary_factor", "rope_theta", "rope_scaling"}) config.erase(key);
  config["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 5e5}, {"partial_rotary_factor", 0.25}};
  const ModelConfig c = read(config);
  expect_heads(attention(c), {96, 8, 128, 32, 5e5});
  EXPECT_EQ(moe(c, 3).router.n_groups, 8);
  EXPECT_EQ(moe(c, 3).router.top_groups, 4);

  config["partial_rotary_factor"] = 0.5;  // the default, which exports write beside it
  EXPECT_EQ(attention(read(config)).rope.n_rot, 32);
  config["partial_rotary_factor"] = 0.75;
  expect_error(Errc::BadInput, {"partial_rotary_factor", "0.25", "0.75"}, [&] { read(config); });
}

// ---- glm4

TEST(Glm4, Released) {
  const ModelConfig c = read(test::kGlm4_32B);
  expect_sizes(c, {6144, 151552, 61, 32768, 1e-5f});
  expect_heads(attention(c), {48, 2, 128, 64, 1e4});
  EXPECT_TRUE(attention(c).rope.interleaved);
  EXPECT_FALSE(attention(c).has_bias || attention(c).has_out_bias);
  EXPECT_EQ(d_ff(c, 60), 23040);
  for (const LayerSpec& layer : c.layers) EXPECT_TRUE(layer.has_post_norms);
}

TEST(Glm4, Assumed) {
  const ModelConfig c = assumed("glm4");
  expect_sizes(c, {4096, 151552, 40, 131072, 1.5625e-7f});
  expect_heads(attention(c), {32, 2, 128, 64, 1e4});
  EXPECT_TRUE(attention(c).has_bias);
  EXPECT_FALSE(attention(c).has_out_bias);
  EXPECT_EQ(d_ff(c), 13696);
}

// ---- minimax_m2

TEST(MinimaxM2, Released) {
  const ModelConfig c = read(test::kMinimaxM2);
  expect_sizes(c, {3072, 200064, 62, 196608, 1e-6f});
  expect_heads(attention(c), {48, 8, 128, 64, 5e6});
  EXPECT_EQ(attention(c).qk_norm, QkNorm::WholeRow);
  expect_experts(moe(c, 61), 256, 8, 1536);
  const RouterSpec& router = moe(c).router;
  EXPECT_EQ(router.scoring, RouterScoring::Sigmoid);
  EXPECT_TRUE(router.has_correction_bias && router.normalize);
  EXPECT_EQ(router.scale, 1);
  EXPECT_EQ(moe(c).d_shared, 0);
}

TEST(MinimaxM2, Assumed) {
  const ModelConfig c = assumed("minimax_m2");
  expect_sizes(c, {3072, 200064, 62, 196608, 1e-6f});
  expect_heads(attention(c), {48, 8, 128, 128, 5e6});
  expect_experts(moe(c), 256, 8, 1536);
}

TEST(MinimaxM2, TheShareOfAHeadInsteadOfItsWidth) {
  Json config = parse_json(test::kMinimaxM2, "test");
  config["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 5000000}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(attention(read(config)).rope.n_rot, 64);  // both agree
  config["rope_parameters"]["partial_rotary_factor"] = 0.25;
  expect_error(Errc::BadInput, {"rotary_dim", "64", "0.25", "128"}, [&] { read(config); });
  config.erase("rotary_dim");
  EXPECT_EQ(attention(read(config)).rope.n_rot, 32);
}

}  // namespace
}  // namespace moeflux
