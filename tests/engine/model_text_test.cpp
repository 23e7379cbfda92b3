#include "engine/model_text.h"

#include <array>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using Ids = std::vector<TokenId>;
constexpr std::array<std::string_view, 3> kEndTokens{"<|im_end|>", "hello", "no such token"};

Ids stop_tokens(const Json& config, const Json& generation_config,
                const Tokenizer* tokenizer = nullptr) {
  ModelSource source("test", ModelSource::Layout::Safetensors);
  source.set_config(config, "config.json");
  source.set_generation_config(generation_config);
  Family family{};
  family.end_tokens = kEndTokens;
  return find_stop_tokens(source, family, tokenizer);
}

TEST(StopTokens, AreTheUnionOfAllFiles) {
  EXPECT_EQ(stop_tokens({{"eos_token_id", 7}}, {{"eos_token_id", {9, 3}}}), (Ids{3, 7, 9}));
  EXPECT_EQ(stop_tokens({{"text_config", {{"eos_token_id", 5}}}, {"eos_token_id", {5, 6}}},
                        Json::object()),
            (Ids{5, 6}));
  EXPECT_EQ(stop_tokens(Json::object(), Json::object()), Ids{});
}

TEST(StopTokens, WhatIsNoIdIsIgnored) {
  const Json odd = Json::array({-1, "2", nullptr, 2.0, 1LL << 40, UINT64_MAX, Json::array({4}), 8});
  EXPECT_EQ(stop_tokens({{"eos_token_id", odd}}, {{"eos_token_id", nullptr}}), Ids{8});
  EXPECT_EQ(stop_tokens({{"text_config", 3}, {"eos_token_id", kMaxTokenId}}, Json::object()),
            Ids{kMaxTokenId});
  EXPECT_EQ(stop_tokens({{"eos_token_id", kMaxTokenId + 1}}, Json::object()), Ids{});
}

// Of the family's end tokens those that are control tokens: "hello" may be a word like any other.
TEST(StopTokens, TokenizerAndFamilyCount) {
  const auto source = open_source(test::source_path("models/demo"));
  const auto tokenizer = load_tokenizer(*source);
  ASSERT_NE(tokenizer, nullptr);
  const TokenId end = tokenizer->find_token("<|im_end|>").value();
  Ids expected{1, end};
  if (const auto eos = tokenizer->eos()) expected.push_back(*eos);
  std::sort(expected.begin(), expected.end());
  expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
  EXPECT_EQ(stop_tokens({{"eos_token_id", 1}}, Json::object(), tokenizer.get()), expected);
}

}  // namespace
}  // namespace moeflux
