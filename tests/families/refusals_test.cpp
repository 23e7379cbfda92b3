// Configs that must be refused, each with the field and the value in the message.
#include <functional>

#include <gtest/gtest.h>

#include "families/config_source.h"
#include "families/released_configs.h"
#include "support/edited_source.h"
#include "support/expect_error.h"
#include "support/loaded_model.h"

namespace moeflux {
namespace {

using test::ConfigSource;
using test::expect_error;

struct Refusal {
  const char* name;
  const char* base;
  std::function<void(Json&)> spoil;  // of the object that holds the text model's sizes
  Errc code;
  std::vector<std::string> says;
};

std::function<void(Json&)> set(const char* key, Json value) {
  return [=](Json& c) { c[key] = value; };
}
std::function<void(Json&)> drop(const char* key) {
  return [=](Json& c) { c.erase(key); };
}
std::function<void(Json&)> set_rope(const char* place, const char* key, Json value) {
  return [=](Json& c) { c[place][key] = value; };
}

std::function<void(Json&)> set_rotary_share(Json value) {
  return [=](Json& c) {
    c["partial_rotary_factor"] = c["rope_parameters"]["partial_rotary_factor"] = value;
  };
}

std::vector<Refusal> refusals() {
  const auto q = test::kQwen35B;
  const auto d = test::kDeepseekV3;
  const auto m = test::kMixtral8x22B, o = test::kOlmoe7B, q3m = test::kQwen3Coder480B,
             q3 = test::kQwen3_4B, g = test::kGlm45, g4 = test::kGlm4_32B, x = test::kMinimaxM2;
  constexpr Errc kBad = Errc::BadInput, kNo = Errc::Unsupported;
  return {
      {"QwenBias", q, set("attention_bias", true), kNo, {"attention_bias", "true"}},
      {"QwenActivation", q, set("hidden_act", "gelu"), kNo, {"hidden_act", "gelu", "silu"}},
      {"QwenNoOutputGate", q, set("attn_output_gate", false), kNo, {"attn_output_gate"}},
      {"QwenGateTanh", q, set("output_gate_type", "tanh"), kNo, {"output_gate_type", "tanh"}},
      {"QwenLayerScale", q, set("layer_scale", true), kNo, {"layer_scale"}},
      {"QwenOwnMtpEmbeddings",
       q,
       set("mtp_use_dedicated_embeddings", true),
       kNo,
       {"mtp_use_dedicated_embeddings"}},
      {"QwenLongrope",
       q,
       set_rope("rope_parameters", "rope_type", "longrope"),
       kNo,
       {"rope_type", "longrope", "yarn"}},
      {"QwenRopeTypeNumber", q, set_rope("rope_parameters", "rope_type", 3), kBad, {"rope_type"}},
      {"QwenRopeNotAnObject", q, set("rope_parameters", {1, 2}), kBad, {"rope_parameters"}},
      {"QwenNoTheta", q, set_rope("rope_parameters", "rope_theta", nullptr), kBad, {"rope_theta"}},
      {"QwenThetaOne", q, set_rope("rope_parameters", "rope_theta", 1), kBad, {"rope_theta is 1"}},
      {"QwenThetaText", q, set_rope("rope_parameters", "rope_theta", "1e7"), kBad, {"rope_theta"}},
      {"QwenShareZero", q, set_rotary_share(0), kBad, {"partial_rotary_factor is 0"}},
      {"QwenShareTwo", q, set_rotary_share(2.0), kBad, {"partial_rotary_factor is 2"}},
      {"QwenShareTiny", q, set_rotary_share(0.001), kBad, {"0 rotary", "head of 256"}},
      {"QwenTwoShares",
       q,
       set("partial_rotary_factor", 0.5),
       kBad,
       {"partial_rotary_factor", "0.25", "0.5"}},
      {"QwenTwoThetas", q, set("rope_theta", 1e6), kBad, {"rope_theta", "10000000", "1000000.0"}},
      {"QwenLinearWithoutFactor",
       q,
       set_rope("rope_parameters", "rope_type", "linear"),
       kBad,
       {"factor"}},
      {"QwenSlidingAttention",
       q,
       [](Json& c) { c["layer_types"] = Json(std::vector<std::string>(40, "sliding_attention")); },
       kNo,
       {"layer_types[0]", "sliding_attention"}},
      {"QwenShortLayerTypes",
       q,
       set("layer_types", {"full_attention"}),
       kBad,
       {"layer_types", "40"}},
      {"QwenLayerTypesText", q, set("layer_types", "full_attention"), kBad, {"layer_types"}},
      {"QwenIntervalZero",
       q,
       set("full_attention_interval", 0),
       kBad,
       {"full_attention_interval", "0"}},
      {"QwenNoHiddenSize", q, drop("hidden_size"), kBad, {"hidden_size", "missing"}},
      {"QwenNoVocabulary", q, drop("vocab_size"), kBad, {"vocab_size", "missing"}},
      {"QwenNoHeadSize", q, drop("head_dim"), kBad, {"head_dim", "missing"}},
      {"QwenNoContext", q, drop("max_position_embeddings"), kBad, {"max_position_embeddings"}},
      {"QwenTrillion", q, set("hidden_size", 1e12), kBad, {"hidden_size", "1000000000000"}},
      {"QwenNegative", q, set("hidden_size", -1), kBad, {"hidden_size", "-1"}},
      {"QwenFraction", q, set("hidden_size", 1.5), kBad, {"hidden_size", "1.5"}},
      {"QwenText", q, set("hidden_size", "big"), kBad, {"hidden_size", "big"}},
      {"QwenUnsigned64",
       q,
       set("hidden_size", UINT64_MAX),
       kBad,
       {"hidden_size", "18446744073709551615"}},
      {"QwenTopK", q, set("num_experts_per_tok", 300), kBad, {"300", "256"}},
      {"QwenManyLayers",
       q,
       set("num_hidden_layers", 100000),
       kBad,
       {"num_hidden_layers", "100000"}},
      {"QwenHeads", q, set("num_key_value_heads", 3), kBad, {"16", "3"}},
      {"QwenEps", q, set("rms_norm_eps", 0), kBad, {"rms_norm_eps"}},
      {"QwenEpsText", q, set("rms_norm_eps", "small"), kBad, {"rms_norm_eps"}},
      {"QwenSharedMissing",
       q,
       drop("shared_expert_intermediate_size"),
       kBad,
       {"shared_expert_intermediate_size"}},
      {"QwenWideProduct", q, set("head_dim", 1 << 23), kBad, {"width of the queries"}},

      {"DeepseekBias", d, set("attention_bias", true), kNo, {"attention_bias"}},
      {"DeepseekKvHeads",
       d,
       set("num_key_value_heads", 64),
       kNo,
       {"num_key_value_heads", "64", "128"}},
      {"DeepseekKvHeadsText", d, set("num_key_value_heads", "128"), kBad, {"num_key_value_heads"}},
      {"DeepseekHeadSize", d, set("head_dim", 128), kNo, {"head_dim", "128", "64 or 192"}},
      {"DeepseekQkHeadSize", d, set("qk_head_dim", 128), kNo, {"qk_head_dim", "128", "192"}},
      {"DeepseekRotaryShare", d, set("partial_rotary_factor", 0.5), kNo, {"partial_rotary_factor"}},
      {"DeepseekInterleaveText", d, set("rope_interleave", "yes"), kBad, {"rope_interleave"}},
      {"DeepseekWindow", d, set("use_sliding_window", true), kNo, {"use_sliding_window", "true"}},
      {"DeepseekMlpBias", d, set("mlp_bias", true), kNo, {"mlp_bias", "true"}},
      {"QwenBiasText", q, set("attention_bias", "no"), kBad, {"attention_bias"}},
      {"DeepseekActivation", d, set("hidden_act", "gelu"), kNo, {"hidden_act", "gelu"}},
      {"DeepseekGreedy",
       d,
       set("topk_method", "greedy"),
       kNo,
       {"topk_method", "greedy", "noaux_tc"}},
      {"DeepseekSoftmax",
       d,
       set("scoring_func", "softmax"),
       kNo,
       {"scoring_func", "softmax", "sigmoid"}},
      {"DeepseekLongrope", d, set_rope("rope_scaling", "type", "longrope"), kNo, {"longrope"}},
      {"DeepseekNoTheta", d, drop("rope_theta"), kBad, {"rope_theta"}},
      {"DeepseekYarnFactor", d, set_rope("rope_scaling", "factor", 0.5), kBad, {"factor is 0.5"}},
      {"DeepseekYarnBeta", d, set_rope("rope_scaling", "beta_slow", -1), kBad, {"YaRN"}},
      {"DeepseekYarnText", d, set_rope("rope_scaling", "mscale", "one"), kBad, {"mscale"}},
      {"DeepseekTopK", d, set("num_experts_per_tok", 257), kBad, {"257", "256"}},
      {"DeepseekGroups", d, set("n_group", 7), kBad, {"256", "7"}},
      {"DeepseekGroupsKept", d, set("topk_group", 9), kBad, {"9", "8"}},
      {"DeepseekFewInGroups", d, set("num_experts_per_tok", 200), kBad, {"200", "128"}},
      {"DeepseekOddRope", d, set("qk_rope_head_dim", 63), kBad, {"63"}},
      {"DeepseekNoRank", d, drop("kv_lora_rank"), kBad, {"kv_lora_rank"}},
      {"DeepseekDense", d, set("first_k_dense_replace", -1), kBad, {"first_k_dense_replace", "-1"}},
      {"DeepseekManyShared",
       d,
       set("n_shared_experts", 10000),
       kBad,
       {"n_shared_experts", "10000"}},
      {"DeepseekWideShared",
       d,
       [](Json& c) { c["n_shared_experts"] = 4096, c["moe_intermediate_size"] = 8192; },
       kBad,
       {"shared expert size"}},
      {"DeepseekScaleText",
       d,
       set("routed_scaling_factor", "2.5"),
       kBad,
       {"routed_scaling_factor"}},
      {"DeepseekScaleInfinite", d, set("routed_scaling_factor", 1e300), kBad, {"scal"}},
      {"MixtralActivation", m, set("hidden_act", "gelu"), kNo, {"hidden_act", "gelu"}},
      {"MixtralBias", m, set("attention_bias", true), kNo, {"attention_bias"}},
      {"MixtralWindowZero", m, set("sliding_window", 0), kBad, {"sliding_window", "0"}},
      {"MixtralPartialRotation",
       m,
       set("partial_rotary_factor", 0.5),
       kNo,
       {"partial_rotary_factor"}},
      {"MixtralNoExperts", m, set("num_local_experts", 0), kBad, {"experts is 0"}},
      {"LlamaMlpBias", test::kLlama31, set("mlp_bias", true), kNo, {"mlp_bias"}},
      {"LlamaActivation", test::kLlama31, set("hidden_act", "gelu"), kNo, {"hidden_act", "gelu"}},
      {"LlamaWindow", test::kLlama31, set("sliding_window", 64), kNo, {"sliding_window"}},
      {"MixtralQkNorm", m, set("use_qk_norm", true), kNo, {"use_qk_norm"}},
      {"OlmoeHeadSize", o, set("head_dim", 64), kNo, {"head_dim", "64", "128"}},
      {"OlmoeClipZero", o, set("clip_qkv", 0), kBad, {"clip_qkv", "0"}},
      {"OlmoeClipText", o, set("clip_qkv", "8"), kBad, {"clip_qkv"}},
      {"OlmoeWindow", o, set("sliding_window", 128), kNo, {"sliding_window", "128"}},
      {"Qwen3MoeQkvBias", q3m, set("qkv_bias", true), kNo, {"qkv_bias"}},
      {"Qwen3MoeNoQkNorm", q3m, set("use_qk_norm", false), kNo, {"use_qk_norm"}},
      {"Qwen3MoeShared",
       q3m,
       set("shared_expert_intermediate_size", 512),
       kNo,
       {"shared_expert_intermediate_size", "512"}},
      {"Qwen3MoeDenseText", q3m, set("mlp_only_layers", "1"), kBad, {"mlp_only_layers"}},
      {"Qwen3MoeDenseFraction", q3m, set("mlp_only_layers", {1.5}), kBad, {"mlp_only_layers"}},
      {"Qwen3MoeStepZero", q3m, set("decoder_sparse_step", 0), kBad, {"decoder_sparse_step"}},
      {"Qwen3MoeLongrope",
       q3m,
       set("rope_scaling", {{"type", "longrope"}, {"factor", 4}}),
       kNo,
       {"longrope", "yarn"}},
      {"Qwen3LayerTypes",
       q3,
       [](Json& c) { c["layer_types"] = Json(std::vector<std::string>(36, "linear_attention")); },
       kNo,
       {"layer_types[0]", "linear_attention", "sliding_attention"}},
      {"Qwen3WindowWithoutOne",
       q3,
       [](Json& c) { c["layer_types"] = Json(std::vector<std::string>(36, "sliding_attention")); },
       kBad,
       {"layer_types[0]", "no window"}},
      {"Qwen3Biases", q3, set("mlp_bias", true), kNo, {"mlp_bias"}},
      {"Glm4MoeSoftmax", g, set("scoring_func", "softmax"), kNo, {"scoring_func", "softmax"}},
      {"Glm4MoeGroups", g, set("n_group", 7), kBad, {"160", "7"}},
      {"Glm4MoeOutBias", g, set("attention_out_bias", true), kNo, {"attention_out_bias"}},
      {"Glm4MoeShareZero", g, set("partial_rotary_factor", 0), kBad, {"partial_rotary_factor"}},
      {"Glm4MlpBias", g4, set("mlp_bias", true), kNo, {"mlp_bias"}},
      {"Glm4Activation", g4, set("hidden_act", "gelu"), kNo, {"hidden_act", "gelu"}},
      {"MinimaxNormPerHead", x, set("qk_norm_type", "per_head"), kNo, {"qk_norm_type", "per_head"}},
      {"MinimaxNoNorm", x, set("use_qk_norm", false), kNo, {"use_qk_norm"}},
      {"MinimaxNoRoutingBias", x, set("use_routing_bias", false), kNo, {"use_routing_bias"}},
      {"MinimaxSoftmax", x, set("scoring_func", "softmax"), kNo, {"scoring_func", "softmax"}},
      {"MinimaxShared",
       x,
       set("shared_intermediate_size", 64),
       kNo,
       {"shared_intermediate_size", "64"}},
      {"MinimaxLightning", x, set("attn_type_list", {1, 0, 1}), kNo, {"attn_type_list", "0"}},
      {"MinimaxMultiplier", x, set("layernorm_mlp_beta", 3.5), kNo, {"layernorm_mlp_beta", "3.5"}},
      {"MinimaxWideRotation", x, set("rotary_dim", 130), kBad, {"130", "head of 128"}},
      {"MinimaxWindow", x, set("sliding_window", 128), kNo, {"sliding_window", "128"}},
      {"DeepseekNormText", d, set("norm_topk_prob", "yes"), kBad, {"norm_topk_prob"}},
  };
}

class RefusedConfig : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedConfig, NamesTheField) {
  const Refusal& refusal = GetParam();
  Json config = parse_json(refusal.base, "test");
  refusal.spoil(config.contains("text_config") ? config["text_config"] : config);
  const ConfigSource source(config, {"model.embed_tokens.weight"});
  expect_error(refusal.code, {"model/config.json"}, [&] { source.read(); });
  for (const std::string& part : refusal.says) {
    expect_error(refusal.code, {part}, [&] { source.read(); });
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RefusedConfig, testing::ValuesIn(refusals()),
                         [](const auto& test) { return test.param.name; });

TEST(Registry, UnknownModelTypes) {
  test::EditedSource source(test::fixture_path("qwen-ratio3"));
  source.config()["model_type"] = "falcon";
  expect_error(Errc::Unsupported,
               {"falcon", "qwen3_5_moe", "deepseek_v3", "kimi_k2", "config.json"},
               [&] { describe_model(*source.build()); });
  source.config().erase("model_type");
  expect_error(Errc::BadInput, {"model_type", "missing"}, [&] { describe_model(*source.build()); });
  source.config()["model_type"] = 7;
  expect_error(Errc::BadInput, {"model_type"}, [&] { describe_model(*source.build()); });
}

TEST(Registry, EveryTypeHasOneFamily) {
  std::vector<std::string_view> seen;
  for (const Family* family : families()) {
    EXPECT_FALSE(family->end_tokens.empty()) << family->name;
    for (const std::string_view type : family->model_types) {
      EXPECT_EQ(std::count(seen.begin(), seen.end(), type), 0) << type;
      seen.push_back(type);
    }
  }
}

TEST(Registry, FixturesAreDescribed) {
  for (const std::string& name : test::fixture_names()) {
    const ModelDescription model = describe_model(*open_source(test::fixture_path(name)));
    EXPECT_EQ(model.family->name,
              name.find("dsv3") != std::string::npos ? "deepseek_v3" : "qwen3_5_moe")
        << name;
    EXPECT_EQ(model.index.tensors.layers.size(), model.config.layers.size());
  }
}

}  // namespace
}  // namespace moeflux
