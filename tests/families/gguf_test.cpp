// What GGUF files of every architecture become: configs and names that the families read, with what
// the converter has changed said in them (decision 0022). Their numbers: golden_test.
#include "source/gguf.h"

#include <gtest/gtest.h>

#include "families/family.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

struct Opened {
  explicit Opened(const std::string& name)
      : source(open_source(test::data_path("fixtures/gguf-" + name))),
        model(describe_model(*source)) {}

  const Json& config() const { return source->config(); }
  const LayerSpec& layer(std::size_t i) const { return model.config.layers[i]; }
  const AttentionSpec& attention(std::size_t i) const {
    return std::get<AttentionSpec>(layer(i).mixer);
  }

  std::shared_ptr<const ModelSource> source;
  ModelDescription model;
};

struct Expected {
  const char *name, *family;
  int n_layers;
  bool has_mtp;
};

class GgufArchitectures : public testing::TestWithParam<Expected> {};

TEST_P(GgufArchitectures, AreReadByTheirFamily) {
  const Opened opened(GetParam().name);
  EXPECT_EQ(opened.source->layout(), ModelSource::Layout::Gguf);
  EXPECT_EQ(opened.model.family->name, GetParam().family);
  EXPECT_EQ(opened.model.config.n_layers(), GetParam().n_layers);
  EXPECT_EQ(opened.model.config.mtp.has_value(), GetParam().has_mtp);
  EXPECT_EQ(opened.model.index.tensors.mtp.has_value(), GetParam().has_mtp);
}

INSTANTIATE_TEST_SUITE_P(
    Families, GgufArchitectures,
    testing::Values(
        Expected{"qwen35moe", "qwen3_5_moe", 4, true}, Expected{"qwen35", "qwen3_5_moe", 4, true},
        Expected{"qwen3next", "qwen3_next", 4, true}, Expected{"qwen3moe", "qwen3_moe", 2, false},
        Expected{"qwen3", "qwen3", 3, false}, Expected{"deepseek2", "deepseek_v3", 2, false},
        Expected{"glm4moe", "glm4_moe", 2, true}, Expected{"glm4", "glm4", 3, false},
        Expected{"gpt-oss", "gpt_oss", 3, false}, Expected{"minimax-m2", "minimax_m2", 3, false},
        Expected{"olmoe", "olmoe", 2, false}, Expected{"mixtral", "mixtral", 2, false},
        Expected{"llama", "llama", 2, false}, Expected{"gemma4", "gemma4", 3, false}),
    [](const auto& test) {
      std::string name = test.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(GgufFamilies, TheDeltaRuleOfQwen) {
  const Opened opened("qwen35moe");
  EXPECT_EQ(opened.config()["norms_include_one"], true);
  const auto& spec = std::get<GatedDeltaSpec>(opened.layer(0).mixer);
  EXPECT_TRUE(spec.heads_alternate);
  EXPECT_EQ(spec.n_value_heads, 3 * spec.n_key_heads);
  EXPECT_EQ(spec.key_head_of(3), 3 % spec.n_key_heads);
  const ModelTensors<Stored>& tensors = opened.model.index.tensors;
  const auto& block = std::get<GatedDelta<Stored>>(tensors.layers[0].mixer);
  EXPECT_TRUE(block.a_log.are_negated_exps);
  EXPECT_TRUE(block.a_log.name.ends_with("linear_attn.decay"));
  EXPECT_EQ(tensors.layers[0].mixer_norm.shift, 0);
  EXPECT_EQ(tensors.mtp->embed_norm.shift, 0);

  const Opened next("qwen3next");  // in the order of the release
  EXPECT_FALSE(std::get<GatedDeltaSpec>(next.layer(0).mixer).heads_alternate);
  EXPECT_TRUE(std::holds_alternative<AttentionSpec>(next.layer(3).mixer) ||
              std::holds_alternative<AttentionSpec>(next.layer(1).mixer));
}

// Three extents an expert, two where gate and up are fused: then up lies right behind gate.
TEST(GgufFamilies, ExpertsLieInPlace) {
  for (const char* name : {"qwen35moe", "qwen35moe-fused"}) {
    const Opened opened(name);
    const ExpertBank& bank = opened.model.index.experts.front();
    const bool is_fused = std::string(name).ends_with("fused");
    for (int e = 0; e < bank.gate.count(); ++e) {
      const StoredMatrix gate = bank.gate.at(e), up = bank.up.at(e), down = bank.down.at(e);
      EXPECT_EQ(gate.repack, nullptr);
      EXPECT_EQ(gate.data.offset + gate.data.bytes == up.data.offset, is_fused) << name << e;
      EXPECT_EQ(down.data.bytes, gate.data.bytes);
    }
  }
}

TEST(GgufFamilies, LatentsSplitOrNot) {
  const Opened split("deepseek2");
  const auto& a = std::get<LatentAttention<Stored>>(split.model.index.tensors.layers[0].mixer);
  EXPECT_TRUE(a.kv_b.empty());
  EXPECT_FALSE(a.embed_q.empty());
  EXPECT_EQ(split.config()["rope_parameters"]["rope_type"], "yarn");
  EXPECT_EQ(split.config()["rope_parameters"]["mscale_all_dim"], 1.0);

  const Opened legacy("deepseek2-legacy");
  const auto& b = std::get<LatentAttention<Stored>>(legacy.model.index.tensors.layers[0].mixer);
  EXPECT_FALSE(b.kv_b.empty());
  EXPECT_TRUE(b.embed_q.empty());
  EXPECT_EQ(b.spec.q_rank, 0);
}

TEST(GgufFamilies, PairsOfLlama) {
  EXPECT_TRUE(Opened("mixtral").attention(0).rope.interleaved);
  const Opened llama("llama");
  EXPECT_TRUE(llama.attention(0).rope.interleaved);
  EXPECT_EQ(llama.config()["rope_parameters"]["rope_type"], "factors");
  EXPECT_EQ(llama.config()["tie_word_embeddings"], true);
  EXPECT_FALSE(Opened("olmoe").attention(0).rope.interleaved);
  EXPECT_TRUE(Opened("llama-bias").attention(0).has_bias);
}

TEST(GgufFamilies, KindsOfLayersOfGemma) {
  const Opened gemma("gemma4");
  const std::size_t last = static_cast<std::size_t>(gemma.model.config.n_layers()) - 1;
  EXPECT_GT(gemma.attention(0).window, 0);
  EXPECT_EQ(gemma.attention(last).window, 0);
  EXPECT_TRUE(gemma.attention(last).values_are_keys);
  EXPECT_FALSE(gemma.attention(0).values_are_keys);
  EXPECT_GT(gemma.attention(last).d_head, gemma.attention(0).d_head);
  EXPECT_EQ(gemma.attention(last).rope.inv_freq.back(), 0);
  const auto& moe = std::get<MoeSpec>(gemma.layer(0).ffn);
  EXPECT_TRUE(moe.router.has_expert_scales && moe.has_part_norms);
  const Opened values("gemma4-values");
  EXPECT_FALSE(values.attention(last).values_are_keys);
}

TEST(GgufFamilies, WhatOthersHaveOfTheirOwn) {
  const Opened gpt("gpt-oss");
  EXPECT_GT(gpt.attention(0).window, 0);
  EXPECT_EQ(gpt.attention(1).window, 0);
  EXPECT_TRUE(gpt.attention(0).has_sinks);
  EXPECT_TRUE(std::get<MoeSpec>(gpt.layer(0).ffn).has_expert_bias);
  const ExpertBank& bank = gpt.model.index.experts.front();
  EXPECT_EQ(describe(bank.gate.at(0)), "mxfp4");

  const Opened glm("glm4moe");
  EXPECT_EQ(glm.attention(0).qk_norm, QkNorm::PerHead);
  EXPECT_TRUE(glm.attention(0).has_bias);
  EXPECT_EQ(glm.attention(0).rope.n_rot * 2, glm.attention(0).d_head);
  EXPECT_EQ(Opened("glm4moe-groups").attention(0).qk_norm, QkNorm::None);

  EXPECT_FALSE(std::get<MoeSpec>(Opened("olmoe").layer(0).ffn).router.normalize);
  EXPECT_TRUE(std::get<MoeSpec>(Opened("qwen3moe").layer(0).ffn).router.normalize);
  const Opened minimax("minimax-m2");
  EXPECT_EQ(minimax.attention(0).qk_norm, QkNorm::WholeRow);
  EXPECT_TRUE(std::get<MoeSpec>(minimax.layer(0).ffn).router.has_correction_bias);
}

}  // namespace
}  // namespace moeflux
