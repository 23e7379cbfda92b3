#include "model/model_config.h"

#include <functional>

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace moeflux {
namespace {

AttentionSpec attention() {
  return {.n_heads = 6,
          .n_kv_heads = 2,
          .d_head = 24,
          .has_output_gate = true,
          .rope = make_rope(1e4, 12, false),
          .scale = 0.2f};
}
GatedDeltaSpec delta() {
  return {.n_key_heads = 2, .n_value_heads = 6, .d_key = 16, .d_value = 24, .conv_width = 4};
}
MlaSpec mla() {
  return {.n_heads = 4,
          .q_rank = 24,
          .kv_rank = 32,
          .d_nope = 16,
          .d_rope = 8,
          .d_value = 12,
          .rope = make_rope(1e4, 8, true),
          .scale = 0.2f,
          .latent_norm_eps = 1e-6f};
}
MoeSpec moe() {
  return {.n_experts = 8,
          .top_k = 3,
          .d_expert = 24,
          .router = {.n_groups = 4, .top_groups = 2},
          .d_shared = 24,
          .shared_is_gated = false};
}

ModelConfig good() {
  ModelConfig config{.family = "test",
                     .d_model = 48,
                     .n_vocab = 100,
                     .context_length = 1024,
                     .norm_eps = 1e-6f,
                     .layers = {},
                     .mtp = LayerSpec{attention(), moe()}};
  config.layers.push_back({attention(), moe()});
  config.layers.push_back({delta(), DenseFfnSpec{.d_ff = 96}});
  config.layers.push_back({mla(), moe()});
  return config;
}

TEST(ModelConfig, GoodOnesPass) {
  EXPECT_NO_THROW(validate(good(), "config.json"));
  ModelConfig plain = good();
  plain.mtp.reset();
  EXPECT_NO_THROW(validate(plain, "config.json"));
  std::get<MlaSpec>(plain.layers[2].mixer).q_rank = 0;  // queries without a low rank
  std::get<MoeSpec>(plain.layers[0].ffn).d_shared = 0;  // no shared expert
  EXPECT_NO_THROW(validate(plain, "config.json"));
}

TEST(ModelConfig, OptionsOfBlocks) {
  ModelConfig config = good();
  auto& attention = std::get<AttentionSpec>(config.layers[0].mixer);
  attention.has_output_gate = false;
  attention.qk_norm = QkNorm::WholeRow;
  attention.has_bias = attention.has_out_bias = attention.has_sinks = true;
  attention.window = 128;
  auto& moe = std::get<MoeSpec>(config.layers[0].ffn);
  moe.router = {.scores_chosen = true, .has_bias = true};
  moe.has_expert_bias = true;
  moe.activation = {FfnActivation::Kind::ClampedSwiglu, 1.702f, 7};
  auto& ffn = std::get<DenseFfnSpec>(config.layers[1].ffn);
  ffn.activation.kind = FfnActivation::Kind::Gelu;
  ffn.has_bias = true;
  EXPECT_NO_THROW(validate(config, "config.json"));
  attention.rope = {};  // no rotation
  EXPECT_NO_THROW(validate(config, "config.json"));
}

// A gate doubles the rows of the query projection.
TEST(ModelConfig, WidthOfQueriesWithAndWithoutGate) {
  ModelConfig config = good();
  auto& attention = std::get<AttentionSpec>(config.layers[0].mixer);
  attention.n_heads = 1 << 12;
  attention.d_head = 1 << 12;
  test::expect_error(Errc::BadInput, {"width of the queries is 33554432"},
                     [&] { validate(config, "config.json"); });
  attention.has_output_gate = false;
  EXPECT_NO_THROW(validate(config, "config.json"));
}

struct Spoiled {
  const char* name;
  std::function<void(ModelConfig&)> spoil;
  std::vector<std::string> says;  // besides the origin
};

template <class Spec>
std::function<void(ModelConfig&)> mixer(int layer, void (*change)(Spec&)) {
  return [=](ModelConfig& c) {
    change(std::get<Spec>(c.layers[static_cast<std::size_t>(layer)].mixer));
  };
}
std::function<void(ModelConfig&)> moe_of(int layer, void (*change)(MoeSpec&)) {
  return [=](ModelConfig& c) {
    change(std::get<MoeSpec>(c.layers[static_cast<std::size_t>(layer)].ffn));
  };
}
std::function<void(ModelConfig&)> attention_of(void (*change)(AttentionSpec&)) {
  return mixer<AttentionSpec>(0, change);
}
std::function<void(ModelConfig&)> delta_of(void (*change)(GatedDeltaSpec&)) {
  return mixer<GatedDeltaSpec>(1, change);
}
std::function<void(ModelConfig&)> mla_of(void (*change)(MlaSpec&)) {
  return mixer<MlaSpec>(2, change);
}

std::vector<Spoiled> spoiled() {
  using A = AttentionSpec;
  using D = GatedDeltaSpec;
  using L = MlaSpec;
  using M = MoeSpec;
  return {
      {"HiddenSize", [](ModelConfig& c) { c.d_model = 0; }, {"hidden size is 0", "1 to 16777216"}},
      {"HugeHiddenSize", [](ModelConfig& c) { c.d_model = 1 << 25; }, {"33554432"}},
      {"Vocabulary", [](ModelConfig& c) { c.n_vocab = -5; }, {"vocabulary is -5"}},
      {"Context", [](ModelConfig& c) { c.context_length = 0; }, {"context length is 0"}},
      {"NoLayers", [](ModelConfig& c) { c.layers.clear(); }, {"number of layers is 0"}},
      {"ManyLayers", [](ModelConfig& c) { c.layers.resize(4097, c.layers[0]); }, {"4097", "4096"}},
      {"EpsZero", [](ModelConfig& c) { c.norm_eps = 0; }, {"rms_norm_eps"}},
      {"EpsOne", [](ModelConfig& c) { c.norm_eps = 1; }, {"rms_norm_eps"}},
      {"EpsNan", [](ModelConfig& c) { c.norm_eps = NAN; }, {"rms_norm_eps"}},

      {"Heads", attention_of([](A& s) { s.n_heads = 0; }), {"layer 0: attention heads is 0"}},
      {"KvHeads", attention_of([](A& s) { s.n_kv_heads = -1; }), {"key-value heads is -1"}},
      {"HeadSize", attention_of([](A& s) { s.d_head = 0; }), {"head size is 0"}},
      {"HeadsDoNotShare",
       attention_of([](A& s) { s.n_kv_heads = 4; }),
       {"6 attention heads", "4 key-value"}},
      {"WideQueries",
       attention_of([](A& s) { s.n_heads = 1 << 23, s.d_head = 1 << 23; }),
       {"width of the queries"}},
      {"RopeOdd", attention_of([](A& s) { s.rope.n_rot = 11; }), {"11 rotary", "head of 24"}},
      {"RopeNone", attention_of([](A& s) { s.rope.n_rot = 0; }), {"0 rotary"}},
      {"RopeWide", attention_of([](A& s) { s.rope.n_rot = 26; }), {"26 rotary", "head of 24"}},
      {"RopeNegative", attention_of([](A& s) { s.rope.n_rot = -2; }), {"-2 rotary"}},
      {"RopeShortTable",
       attention_of([](A& s) { s.rope.inv_freq.pop_back(); }),
       {"12 rotary", "5 frequencies"}},
      {"WindowNegative", attention_of([](A& s) { s.window = -1; }), {"attention window is -1"}},
      {"WindowHuge", attention_of([](A& s) { s.window = 1 << 29; }), {"536870912", "268435456"}},
      {"ScaleUnset", attention_of([](A& s) { s.scale = 0; }), {"layer 0: the scale", "is 0"}},
      {"ScaleNan", attention_of([](A& s) { s.scale = NAN; }), {"the scale", "nan"}},

      {"KeyHeads", delta_of([](D& s) { s.n_key_heads = 0; }), {"layer 1: linear key heads is 0"}},
      {"ValueHeads", delta_of([](D& s) { s.n_value_heads = 0; }), {"linear value heads is 0"}},
      {"KeySize", delta_of([](D& s) { s.d_key = 0; }), {"linear key head size is 0"}},
      {"ValueSize", delta_of([](D& s) { s.d_value = -3; }), {"linear value head size is -3"}},
      {"ValueHeadsDoNotShare",
       delta_of([](D& s) { s.n_key_heads = 4; }),
       {"6 linear value heads", "4 key heads"}},
      {"ConvOne", delta_of([](D& s) { s.conv_width = 1; }), {"convolution of width 1"}},
      {"ConvWide", delta_of([](D& s) { s.conv_width = 65; }), {"convolution width is 65"}},
      {"ConvChannels", delta_of([](D& s) { s.d_value = 1 << 23; }), {"convolution channels"}},

      {"MlaHeads", mla_of([](L& s) { s.n_heads = 0; }), {"layer 2: attention heads is 0"}},
      {"QRank", mla_of([](L& s) { s.q_rank = -1; }), {"q_lora_rank is -1"}},
      {"KvRank", mla_of([](L& s) { s.kv_rank = 0; }), {"kv_lora_rank is 0"}},
      {"Nope", mla_of([](L& s) { s.d_nope = 0; }), {"qk_nope_head_dim is 0"}},
      {"RopeSize", mla_of([](L& s) { s.d_rope = 0; }), {"qk_rope_head_dim is 0"}},
      {"Value", mla_of([](L& s) { s.d_value = 0; }), {"v_head_dim is 0"}},
      {"MlaWide", mla_of([](L& s) { s.n_heads = 1 << 20; }), {"width of the queries"}},
      {"MlaWideValues",
       mla_of([](L& s) { s.n_heads = 1 << 19, s.d_value = 1 << 10; }),
       {"width of the values"}},
      {"MlaWideLatents",
       mla_of([](L& s) { s.n_heads = 1 << 16, s.kv_rank = 1 << 10; }),
       {"width of the latents"}},
      {"MlaRopeNone", mla_of([](L& s) { s.rope = {}; }), {"layer 2: 0 rotary", "head of 8"}},
      {"MlaRope", mla_of([](L& s) { s.rope.n_rot = 10; }), {"10 rotary", "head of 8"}},

      {"DenseSize",
       [](ModelConfig& c) { c.layers[1].ffn = DenseFfnSpec{.d_ff = 0}; },
       {"layer 1: feed-forward size is 0"}},
      {"Experts", moe_of(0, [](M& s) { s.n_experts = 0; }), {"layer 0: experts is 0"}},
      {"TooManyExperts", moe_of(0, [](M& s) { s.n_experts = 1 << 17; }), {"131072", "65536"}},
      {"TopKZero", moe_of(0, [](M& s) { s.top_k = 0; }), {"experts per token is 0"}},
      {"TopK", moe_of(0, [](M& s) { s.top_k = 9; }), {"9 experts per token of only 8"}},
      {"ExpertSize", moe_of(2, [](M& s) { s.d_expert = 0; }), {"layer 2: expert size is 0"}},
      {"Groups", moe_of(0, [](M& s) { s.router.n_groups = 0; }), {"expert groups is 0"}},
      {"GroupsDoNotDivide",
       moe_of(0, [](M& s) { s.router.n_groups = 3; }),
       {"8 experts", "3 groups"}},
      {"GroupOfOne",
       moe_of(0, [](M& s) { s.router.n_groups = s.router.top_groups = 8; }),
       {"two members"}},
      {"GroupsKept",
       moe_of(0, [](M& s) { s.router.top_groups = 5; }),
       {"groups kept is 5", "1 to 4"}},
      {"GroupsHoldTooFew",
       moe_of(0, [](M& s) { s.top_k = 5; }),
       {"5 experts per token", "2 of 4 groups", "only 4"}},
      {"SharedSize", moe_of(0, [](M& s) { s.d_shared = -1; }), {"shared expert size is -1"}},
      {"SharedGateAlone",
       moe_of(0, [](M& s) { s.d_shared = 0, s.shared_is_gated = true; }),
       {"layer 0: a gate, but no shared expert"}},
      {"GroupsOfUnscored",
       moe_of(0, [](M& s) { s.router.scores_chosen = true; }),
       {"groups of experts need the scores"}},
      {"CorrectionOfUnscored",
       moe_of(0, [](M& s) { s.router = {.scores_chosen = true, .has_correction_bias = true}; }),
       {"correction of scores needs the scores"}},
      {"ExpertAlpha",
       moe_of(0,
              [](M& s) {
                s.activation = {FfnActivation::Kind::ClampedSwiglu, 0, 7};
              }),
       {"layer 0: the alpha of the clamped SwiGLU is 0"}},
      {"ExpertLimit",
       moe_of(0,
              [](M& s) {
                s.activation = {FfnActivation::Kind::ClampedSwiglu, 1.7f, 0};
              }),
       {"layer 0: the limit of the clamped SwiGLU is 0"}},
      {"DenseLimit",
       [](ModelConfig& c) {
         std::get<DenseFfnSpec>(c.layers[1].ffn).activation = {FfnActivation::Kind::ClampedSwiglu,
                                                               1.7f, INFINITY};
       },
       {"layer 1: the limit of the clamped SwiGLU is inf"}},

      {"Mtp",
       [](ModelConfig& c) { std::get<AttentionSpec>(c.mtp->mixer).d_head = 0; },
       {"mtp layer: head size is 0"}},
  };
}

class SpoiledConfig : public testing::TestWithParam<Spoiled> {};

TEST_P(SpoiledConfig, IsRefusedWithItsNumbers) {
  ModelConfig config = good();
  GetParam().spoil(config);
  test::expect_error(Errc::BadInput, {"dir/config.json: "},
                     [&] { validate(config, "dir/config.json"); });
  for (const std::string& part : GetParam().says) {
    test::expect_error(Errc::BadInput, {part}, [&] { validate(config, "dir/config.json"); });
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, SpoiledConfig, testing::ValuesIn(spoiled()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace moeflux
