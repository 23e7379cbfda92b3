#include "families/unread_tensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "families/family.h"
#include "support/edited_source.h"
#include "support/expect_error.h"
#include "support/loaded_model.h"

namespace moeflux {
namespace {

// A tensor nobody needs, under another name.
void expect_tensor_refused(const char* fixture, const std::string& spare, const std::string& name) {
  test::EditedSource source(test::fixture_path(fixture));
  source.copy(spare, name);
  test::expect_error(Errc::Unsupported, {"\"" + name + "\"", fixture},
                     [&] { describe_model(*source.build()); });
}

TEST(UnreadTensors, BiasesOfProjections) {
  for (const char* module :
       {"model.layers.1.self_attn.q_a_proj", "model.layers.2.self_attn.o_proj",
        "model.layers.3.self_attn.kv_a_proj_with_mqa", "model.layers.0.mlp.up_proj",
        "model.layers.1.mlp.gate", "model.layers.1.mlp.experts.7.down_proj",
        "model.layers.2.mlp.shared_experts.gate_proj", "model.norm", "lm_head"}) {
    expect_tensor_refused("dsv3-halfsplit", "model.norm.weight", module + std::string(".bias"));
  }
  for (const char* module :
       {"model.layers.0.self_attn.q_proj", "model.layers.1.linear_attn.conv1d",
        "model.layers.1.linear_attn.in_proj_qkv", "model.layers.2.mlp.shared_expert_gate",
        "mtp.layers.0.self_attn.k_proj"}) {
    expect_tensor_refused("qwen-ratio3", "model.norm.weight", module + std::string(".bias"));
  }
}

TEST(UnreadTensors, OthersOfAttention) {
  for (const char* name : {"self_attn.sinks", "self_attn.q_norm.weight",
                           "self_attn.indexer.wk.weight", "self_attn.q_proj.weight"}) {
    expect_tensor_refused("dsv3-halfsplit", "model.norm.weight",
                          std::string("model.layers.1.") + name);
  }
  expect_tensor_refused("qwen-ratio3", "model.norm.weight", "model.layers.1.linear_attn.D");
}

TEST(UnreadTensors, NormsOfLayers) {
  for (const char* name : {"post_mlp_layernorm", "pre_feedforward_layernorm", "ffn_norm"}) {
    expect_tensor_refused("dsv3-halfsplit", "model.norm.weight",
                          fmt::format("model.layers.1.{}.weight", name));
    expect_tensor_refused("qwen-ratio3", "model.norm.weight",
                          fmt::format("mtp.layers.0.{}.weight", name));
  }
}

TEST(UnreadTensors, WhatSaysNothingNew) {
  test::EditedSource source(test::fixture_path("dsv3-halfsplit"));
  source.copy("model.norm.weight", "model.layers.1.self_attn.rotary_emb.inv_freq")
      .copy("model.norm.weight", "model.layers.9.post_mlp_layernorm.weight")
      .copy("model.norm.weight", "vision_tower.layers.1.self_attn.q_proj.bias");
  EXPECT_NO_THROW(describe_model(*source.build()));
}

}  // namespace
}  // namespace moeflux
