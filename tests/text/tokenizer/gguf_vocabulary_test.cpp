// The vocabulary of a GGUF file and the tokenizer.json it was made from give the same ids.
#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "base/json.h"
#include "support/expect_error.h"
#include "support/gguf_writer.h"
#include "support/paths.h"
#include "text/tokenizer/tiny_tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace moeflux {
namespace {

using Ids = std::vector<TokenId>;
using test::expect_error;
using test::GgufWriter;
using test::TempDir;

constexpr std::size_t kTexts = 2000;

// Those of all vectors, and others put together of two of them.
std::vector<std::string> many_texts() {
  std::set<std::string> texts;
  for (const char* name : {"gpt2", "llama3", "qwen", "gpt4o", "kimi", "deepseek", "neox", "demo",
                           "spm_prepend", "spm_replace"}) {
    std::ifstream file(test::data_path(std::string("tokenizers/") + name + ".vectors.jsonl"));
    for (std::string line; std::getline(file, line);)
      texts.insert(parse_json(line, name)["text"].get<std::string>());
  }
  std::vector<std::string> list(texts.begin(), texts.end());
  std::mt19937 random(1);
  std::shuffle(list.begin(), list.end(), random);
  while (list.size() < kTexts)
    list.push_back(list[random() % list.size()] + list[random() % list.size()]);
  list.resize(kTexts);
  return list;
}

Json load(const std::string& path) {
  return read_json_file(path);
}
Json small_json(const std::string& name) {
  return load(test::data_path("tokenizers/" + name + ".tokenizer.json"));
}

// Tokens by id with their types, as llama.cpp's converter writes them.
template <class AnyJson>
void add_tokens(GgufWriter& writer, const AnyJson& json) {
  std::map<TokenId, std::pair<std::string, std::int32_t>> tokens;
  for (const auto& [text, id] : json["model"]["vocab"].items()) {
    const bool is_byte = text.size() == 6 && text.starts_with("<0x");
    tokens[id.template get<TokenId>()] = {text, is_byte ? 6 : 1};
  }
  for (const auto& token : json["added_tokens"]) {
    const bool is_unknown = token["content"] == "<unk>";
    tokens[token["id"].template get<TokenId>()] = {token["content"].template get<std::string>(),
                                                   is_unknown         ? 2
                                                   : token["special"] ? 3
                                                                      : 4};
  }
  std::vector<std::string> texts;
  std::vector<std::int32_t> types;
  for (const auto& [id, token] : tokens) {
    while (static_cast<TokenId>(texts.size()) < id) {
      texts.push_back("[PAD" + std::to_string(texts.size()) + "]");
      types.push_back(5);
    }
    texts.push_back(token.first);
    types.push_back(token.second);
  }
  writer.texts("tokenizer.ggml.tokens", texts).numbers("tokenizer.ggml.token_type", types);
}

template <class AnyJson>
std::pair<std::string, std::string> pair_of(const AnyJson& merge) {
  if (merge.is_array())
    return {merge[0].template get<std::string>(), merge[1].template get<std::string>()};
  const std::string text = merge.template get<std::string>();
  const std::size_t space = text.find(' ');
  return {text.substr(0, space), text.substr(space + 1)};
}

template <class AnyJson>
GgufWriter byte_level_gguf(const AnyJson& json, const std::string& pre) {
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", pre);
  add_tokens(writer, json);
  std::vector<std::string> merges;
  for (const auto& merge : json["model"]["merges"]) {
    const auto [left, right] = pair_of(merge);
    merges.push_back(left + " " + right);
  }
  return writer.texts("tokenizer.ggml.merges", merges);
}

Tokenizer load_gguf(const GgufWriter& writer) {
  const TempDir dir;
  writer.write(dir.file("model.gguf"));
  return Tokenizer::from_gguf_file(dir.file("model.gguf"));
}

void expect_same(const Tokenizer& gguf, const Tokenizer& json) {
  for (const std::string& text : many_texts()) {
    const Ids ids = json.encode_markup(text);
    ASSERT_EQ(gguf.encode_markup(text), ids) << text;
    ASSERT_EQ(gguf.encode_data(text), json.encode_data(text)) << text;
    ASSERT_EQ(gguf.decode(ids), json.decode(ids)) << text;
    ASSERT_EQ(gguf.decode(ids, true), json.decode(ids, true)) << text;
  }
  for (const AddedToken& token : json.added_tokens()) {
    EXPECT_EQ(gguf.find_token(token.content), token.id);
    EXPECT_EQ(gguf.is_special(token.id), token.special) << token.content;
  }
}

struct Kind {
  const char *json, *pre;
};

class GgufByteLevel : public testing::TestWithParam<Kind> {};

TEST_P(GgufByteLevel, GivesTheIdsOfTokenizerJson) {
  const Json json = small_json(GetParam().json);
  expect_same(load_gguf(byte_level_gguf(json, GetParam().pre)), test::load_json(json));
}

INSTANTIATE_TEST_SUITE_P(Text, GgufByteLevel,
                         testing::Values(Kind{"gpt2", "gpt-2"}, Kind{"llama3", "llama-bpe"},
                                         Kind{"qwen", "qwen35"}, Kind{"gpt4o", "gpt-4o"},
                                         Kind{"kimi", "kimi-k2"}, Kind{"deepseek", "deepseek-v3"},
                                         Kind{"neox", "olmo"}),
                         [](const auto& test) { return std::string(test.param.json); });

// The released vocabularies, where ../shared has them.
class GgufReleased : public testing::TestWithParam<Kind> {};

TEST_P(GgufReleased, GivesTheIdsOfTokenizerJson) {
  const std::string packed = std::string("tokenizers/") + GetParam().json + ".tokenizer.json.xz";
  MOEFLUX_NEED_SHARED(packed);
  const TempDir dir;
  const std::string path = dir.file("tokenizer.json");
  ASSERT_EQ(std::system(("xz -dc '" + test::shared_path(packed) + "' > " + path).c_str()), 0);
  GgufWriter writer;
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);  // in linear time
  expect_same(load_gguf(byte_level_gguf(json, GetParam().pre)),
              Tokenizer::from_json_file(path, ""));
}

INSTANTIATE_TEST_SUITE_P(Text, GgufReleased,
                         testing::Values(Kind{"qwen3_5", "qwen35"},
                                         Kind{"deepseek_v3", "deepseek-v3"}),
                         [](const auto& test) { return std::string(test.param.json); });

// ---- SentencePiece
// -------------------------------------------------------------------------------------------------

// Scores fall with the ids of the tokens behind the bytes, and a merge for every way to put a token
// together, best score first, is what transformers makes of them.
struct Pieces {
  Json json;
  std::vector<float> scores;
};

Pieces sentence_pieces() {
  Pieces made{small_json("spm_prepend"), {}};
  Json& model = made.json["model"];
  std::map<TokenId, std::string> by_id;
  for (const auto& [text, id] : model["vocab"].items()) by_id[id.get<TokenId>()] = text;
  made.scores.resize(1602);
  model["merges"] = Json::array();
  for (const auto& [id, text] : by_id) {
    if (id < 259) continue;
    made.scores[static_cast<std::size_t>(id)] = -static_cast<float>(id - 259);
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = model["vocab"].find(text.substr(0, cut));
      const auto right = model["vocab"].find(text.substr(cut));
      if (left == model["vocab"].end() || right == model["vocab"].end()) continue;
      model["merges"].push_back({text.substr(0, cut), text.substr(cut)});
    }
  }
  return made;
}

GgufWriter sentence_piece_gguf(const Pieces& pieces) {
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "llama");
  add_tokens(writer, pieces.json);
  return writer.numbers("tokenizer.ggml.scores", pieces.scores);
}

TEST(GgufSentencePieces, GiveTheIdsOfTokenizerJson) {
  const Pieces pieces = sentence_pieces();
  expect_same(load_gguf(sentence_piece_gguf(pieces)), test::load_json(pieces.json));
}

// As Gemma 4 has them.
TEST(GgufSentencePieces, WithMerges) {
  const Json json = small_json("spm_replace");
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "gemma4")
      .boolean("tokenizer.ggml.add_space_prefix", false)
      .boolean("tokenizer.ggml.add_bos_token", true)
      .number<std::uint32_t>("tokenizer.ggml.bos_token_id", 2)
      .number<std::uint32_t>("tokenizer.ggml.unknown_token_id", 3);
  add_tokens(writer, json);
  std::vector<std::string> merges;
  for (const auto& merge : json["model"]["merges"]) {
    const auto [left, right] = pair_of(merge);
    merges.push_back(left + " " + right);
  }
  const Tokenizer gguf = load_gguf(writer.texts("tokenizer.ggml.merges", merges));
  expect_same(gguf, test::load_json(json));
  EXPECT_EQ(gguf.with_special_tokens({7}), (Ids{2, 7}));
}

TEST(GgufSentencePieces, DefaultsAreThoseOfLlama) {
  const Pieces pieces = sentence_pieces();
  const Tokenizer tokenizer = load_gguf(sentence_piece_gguf(pieces));
  EXPECT_EQ(tokenizer.bos(), 1);
  EXPECT_EQ(tokenizer.eos(), 2);
  EXPECT_TRUE(tokenizer.add_bos());
  EXPECT_EQ(tokenizer.with_special_tokens({300}), (Ids{1, 300}));
  const Tokenizer bare = load_gguf(sentence_piece_gguf(pieces)
                                       .boolean("tokenizer.ggml.add_space_prefix", false)
                                       .boolean("tokenizer.ggml.add_bos_token", false)
                                       .boolean("tokenizer.ggml.add_eos_token", true));
  EXPECT_EQ(bare.with_special_tokens({300}), (Ids{300, 2}));
  const std::string text = "the engine";
  EXPECT_EQ(bare.decode(bare.encode_markup(text)), text);
  EXPECT_NE(bare.encode_markup(text), tokenizer.encode_markup(text));
}

// Two pieces of one score: neither is better, so the left one is merged.
TEST(GgufSentencePieces, EqualScoresMergeFromTheLeft) {
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "llama")
      .boolean("tokenizer.ggml.add_space_prefix", false)
      .texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a", "b", "c", "bc", "ab"})
      .numbers<std::int32_t>("tokenizer.ggml.token_type", {2, 3, 3, 1, 1, 1, 1, 1})
      .numbers<float>("tokenizer.ggml.scores", {0, 0, 0, -9, -9, -9, -1, -1});
  const Tokenizer tokenizer = load_gguf(writer);
  EXPECT_EQ(tokenizer.encode_data("abc"), (Ids{7, 5}));
  std::string many;
  Ids expected;
  for (int i = 0; i < 60; ++i) {
    many += "abc";
    expected.insert(expected.end(), {7, 5});
  }
  EXPECT_EQ(tokenizer.encode_data(many), expected);  // the way of long pieces
  EXPECT_EQ(tokenizer.encode_data("xyz"), (Ids{0}));
}

// ---- keys
// -------------------------------------------------------------------------------------------------

GgufWriter small_vocabulary() {
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "qwen2")
      .texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<think>", "<|end|>", "[PAD5]", "<e>"})
      .numbers<std::int32_t>("tokenizer.ggml.token_type", {1, 1, 1, 4, 3, 5, 1})
      .texts("tokenizer.ggml.merges", {"a b"});
  return writer;
}

TEST(GgufVocabulary, TypesOfTokens) {
  const Tokenizer tokenizer =
      load_gguf(small_vocabulary()
                    .number<std::uint32_t>("tokenizer.ggml.eos_token_id", 6)
                    .number<std::uint32_t>("tokenizer.ggml.padding_token_id", 4)
                    .number<std::uint32_t>("tokenizer.ggml.bos_token_id", 4294967295u));
  EXPECT_EQ(tokenizer.encode_markup("ab<think>a<|end|><e>"), (Ids{2, 3, 0, 4, 6}));
  EXPECT_FALSE(tokenizer.is_special(3));
  EXPECT_TRUE(tokenizer.is_special(4));
  EXPECT_TRUE(tokenizer.is_special(6));  // whatever its type
  EXPECT_EQ(tokenizer.eos(), 6);
  EXPECT_EQ(tokenizer.bos(), std::nullopt);
  EXPECT_EQ(tokenizer.special_tokens().at("pad_token"), "<|end|>");
  EXPECT_EQ(tokenizer.token_bytes(5), "");
  EXPECT_FALSE(tokenizer.find_token("[PAD5]").has_value());
}

// A merge may make a token that is also found as a whole.
TEST(GgufVocabulary, AddedTokensTakePartInMerges) {
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "qwen2")
      .texts("tokenizer.ggml.tokens", {"a", "b", "ab"})
      .numbers<std::int32_t>("tokenizer.ggml.token_type", {1, 1, 4})
      .texts("tokenizer.ggml.merges", {"a b"});
  const Tokenizer tokenizer = load_gguf(writer);
  EXPECT_EQ(tokenizer.encode_markup("aab"), (Ids{0, 2}));
  EXPECT_EQ(tokenizer.encode_data("aab"), (Ids{0, 2}));
}

TEST(GgufVocabulary, WhatIsRefused) {
  const auto refuse = [](const GgufWriter& writer, Errc code,
                         std::initializer_list<std::string_view> parts) {
    expect_error(code, {"model.gguf"}, [&] { load_gguf(writer); });
    expect_error(code, parts, [&] { load_gguf(writer); });
  };
  refuse(GgufWriter(), Errc::BadInput, {"tokenizer.ggml.model", "missing"});
  GgufWriter words;
  words.text("tokenizer.ggml.model", "bert").texts("tokenizer.ggml.tokens", {"a"});
  refuse(words, Errc::Unsupported, {"\"bert\"", "gpt2, llama, gemma4"});
  GgufWriter split;
  split.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "superbpe")
      .texts("tokenizer.ggml.tokens", {"a"});
  refuse(split, Errc::Unsupported, {"\"superbpe\"", "qwen35", "llama-bpe"});
  GgufWriter no_merges;
  no_merges.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", {"a"});
  refuse(no_merges, Errc::BadInput, {"tokenizer.ggml.merges", "missing"});
  refuse(no_merges.texts("tokenizer.ggml.merges", {"ab"}), Errc::BadInput, {"\"ab\"", "no pair"});
  GgufWriter types;
  types.text("tokenizer.ggml.model", "gpt2")
      .texts("tokenizer.ggml.tokens", {"a"})
      .numbers<std::int32_t>("tokenizer.ggml.token_type", {1, 1});
  refuse(types, Errc::BadInput, {"token_type", "2 values for 1 tokens"});
  GgufWriter scores;
  scores.text("tokenizer.ggml.model", "llama")
      .texts("tokenizer.ggml.tokens", {"a"})
      .numbers<float>("tokenizer.ggml.scores", {});
  refuse(scores, Errc::BadInput, {"scores", "0 values"});
  GgufWriter bytes;
  bytes.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", {"\xFF"});
  refuse(bytes, Errc::BadInput, {"token 0 is not UTF-8"});
}

}  // namespace
}  // namespace moeflux
