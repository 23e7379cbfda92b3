#include <fstream>

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/tokenizer/tiny_tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace moeflux {
namespace {

using Ids = std::vector<TokenId>;
using test::load_json;
using test::TempDir;
using test::tiny_added;
using test::tiny_json;

// The message of the Error that loading `content` ends in, after the path.
std::string error_of(const std::string& content, const std::string& config = "") {
  const TempDir dir;
  const std::string path = dir.write("tokenizer.json", content);
  const std::string config_path = config.empty() ? "" : dir.write("tokenizer_config.json", config);
  try {
    Tokenizer::from_json_file(path, config_path);
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const std::string& file : {path, config_path}) {
      if (!file.empty() && message.rfind(file, 0) == 0) return message.substr(file.size());
    }
    return "(file not named) " + message;
  }
  return "no error";
}

std::string error_of_json(const Json& json) {
  return error_of(json.dump());
}

// Edits a valid file and returns the error of the result.
template <class Edit>
std::string error_after(Edit edit) {
  Json json = tiny_json({{"t", "h"}});
  edit(json);
  return error_of_json(json);
}

void expect_error(const std::string& message, const std::string& part) {
  EXPECT_EQ(message.rfind(": ", 0), 0u) << message;
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(TokenizerJson, AgreesWithTheReference) {
  std::ifstream file(test::source_path("tests/text/tokenizer/reference/tokenizers.jsonl"));
  ASSERT_TRUE(file.is_open());
  int n_cases = 0;
  for (std::string line; std::getline(file, line);) {
    const Json json = parse_json(line, "tokenizers.jsonl");
    const Tokenizer tokenizer = load_json(json["tokenizer"]);
    for (const Json& one : json["cases"]) {
      const auto ids = one["ids"].get<Ids>();
      EXPECT_EQ(tokenizer.encode_markup(one["text"].get<std::string>()), ids)
          << json["name"] << one;
      EXPECT_EQ(tokenizer.decode(ids), one["decoded"].get<std::string>()) << json["name"] << one;
      EXPECT_EQ(tokenizer.decode(ids, true), one["shown"].get<std::string>())
          << json["name"] << one;
      ++n_cases;
    }
  }
  EXPECT_EQ(n_cases, 12 * 24);
}

TEST(TokenizerJson, MergesMayBeTextsOrPairs) {
  Json json = tiny_json({{"t", "h"}, {" ", "th"}});
  EXPECT_EQ(load_json(json).encode_markup(" th"), (Ids{257}));
  json["model"]["merges"] = {"#version: 0.2", "t h", "\u0120 th"};
  EXPECT_EQ(load_json(json).encode_markup(" th"), (Ids{257}));
}

TEST(TokenizerJson, GapsInTheVocabularyAreFine) {
  Json json = tiny_json();
  json["model"]["vocab"]["th"] = 5000;
  json["model"]["merges"] = {"t h"};
  const Tokenizer tokenizer = load_json(json);
  EXPECT_EQ(tokenizer.encode_markup("th"), (Ids{5000}));
  EXPECT_EQ(tokenizer.n_ids(), 5001u);
  EXPECT_EQ(tokenizer.decode(Ids{4999, 5000}), "th");
}

TEST(TokenizerJson, AddedTokensOfTheVocabularyKeepTheirId) {
  Json json = tiny_json({{"t", "h"}});
  json["added_tokens"] = {tiny_added("th", 99'999), tiny_added(" ", 300)};
  const Tokenizer tokenizer = load_json(json);
  EXPECT_EQ(tokenizer.encode_markup("th "), (Ids{256, 300}));  // " " is not "\u0120"
  EXPECT_TRUE(tokenizer.is_special(256));
}

TEST(TokenizerJson, ReadsTheConfig) {
  Json json = tiny_json({{"t", "h"}});
  json["added_tokens"] = {tiny_added("<s>", 300)};
  const Json config = parse_json(R"({
      "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null,
      "unk_token": "th",
      "image_token": "<img>", "add_bos_token": true, "add_eos_token": false,
      "model_max_length": 1e30,
      "added_tokens_decoder": {"300": {"content": "<s>", "special": false},
                               "302": {"content": "</s>", "special": true},
                               "303": {"content": "<t>", "special": false, "normalized": false}}})",
                                 "config");
  const Tokenizer tokenizer = load_json(json, config);
  EXPECT_EQ(tokenizer.bos(), 300);
  EXPECT_EQ(tokenizer.eos(), 302);
  EXPECT_TRUE(tokenizer.add_bos());
  EXPECT_TRUE(tokenizer.is_special(300));  // tokenizer.json is first
  EXPECT_TRUE(tokenizer.is_special(302));
  EXPECT_TRUE(tokenizer.is_special(256));  // has a role
  EXPECT_FALSE(tokenizer.is_special(303));
  EXPECT_EQ(tokenizer.encode_markup("</s><t>"), (Ids{302, 303}));
  EXPECT_EQ(tokenizer.special_tokens(),
            (std::map<std::string, std::string>{{"bos_token", "<s>"},
                                                {"eos_token", "</s>"},
                                                {"unk_token", "th"},
                                                {"image_token", "<img>"}}));
  EXPECT_EQ(tokenizer.with_special_tokens({1, 2}), (Ids{300, 1, 2}));
}

TEST(TokenizerJson, PostProcessorsPutTokensAround) {
  Json json = tiny_json();
  json["added_tokens"] = {tiny_added("<s>", 300), tiny_added("</s>", 301)};
  json["post_processor"] = parse_json(R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                  {"Sequence": {"id": "A", "type_id": 0}},
                  {"SpecialToken": {"id": "</s>", "type_id": 0}}],
       "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [300], "tokens": ["<s>"]},
                                      "</s>": {"id": "</s>", "ids": [301, 301],
                                               "tokens": ["a", "b"]}}}]})",
                                      "x");
  const Tokenizer tokenizer = load_json(json);
  EXPECT_EQ(tokenizer.with_special_tokens(tokenizer.encode_markup("a")), (Ids{300, 'a', 301, 301}));
  EXPECT_EQ(tokenizer.encode_markup("a"), (Ids{'a'}));
  json["post_processor"]["processors"][1]["special_tokens"].erase("<s>");
  expect_error(error_of_json(json), "special_tokens: <s>");
}

TEST(TokenizerJson, MalformedFiles) {
  expect_error(error_of(""), "not a valid tokenizer.json");
  expect_error(error_of("{"), "not a valid tokenizer.json");
  expect_error(error_of("[]"), "not a valid tokenizer.json");
  expect_error(error_of("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\xFF\": 1}}}"),
               "not a valid tokenizer.json");
  expect_error(error_of("{}"), "has no \"model\"");
  expect_error(error_of(std::string(100'000, '[')), "not a valid tokenizer.json");
  expect_error(error_of("{\"a\":" + std::string(200, '[') + std::string(200, ']') + "}"),
               "not a valid tokenizer.json");
  EXPECT_THROW(Tokenizer::from_json_file("/nonexistent/tokenizer.json", ""), Error);
}

// A file cut anywhere is refused, never half read.
TEST(TokenizerJson, TruncatedFiles) {
  const std::string content = tiny_json({{"t", "h"}}).dump();
  for (std::size_t n = 0; n < content.size(); n += n < 100 ? 1 : 97) {
    expect_error(error_of(content.substr(0, n)), "not a valid tokenizer.json");
  }
}

TEST(TokenizerJson, BadVocabularies) {
  const auto with_id = [](const Json& id) {
    return error_after([&](Json& json) { json["model"]["vocab"]["th"] = id; });
  };
  expect_error(with_id(-1), "the id of \"th\" is -1");
  expect_error(with_id(std::int64_t{1} << 31), "the id of \"th\" is 2147483648");
  expect_error(with_id(std::uint64_t{1} << 63), "the id of \"th\"");
  expect_error(with_id(1.5), "the id of \"th\" is 1.5");
  expect_error(with_id("7"), "the id of \"th\" is \"7\"");
  expect_error(with_id('a'), "the tokens \"a\" and \"th\" have the same id 97");
  expect_error(error_after([](Json& json) { json["model"].erase("vocab"); }), "model has no vocab");
  expect_error(error_after([](Json& json) { json["model"].erase("merges"); }),
               "model has no merges");
  expect_error(error_after([](Json& json) { json["model"]["vocab"] = Json::array(); }),
               "model.vocab is not an object");
  expect_error(error_of(R"({"model": {"vocab": {}, "merges": []}})"), "the vocabulary is empty");
  expect_error(error_of(R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})"),
               "the token \"a\" twice");
}

TEST(TokenizerJson, BadMerges) {
  const auto with_merge = [](const Json& merge) {
    return error_after([&](Json& json) { json["model"]["merges"].push_back(merge); });
  };
  expect_error(with_merge("abc"), "model.merges[1] is neither");
  expect_error(with_merge("a b c"), "model.merges[1] is neither");
  expect_error(with_merge({"a"}), "model.merges[1] is neither");
  expect_error(with_merge({"a", 1}), "model.merges[1] is neither");
  expect_error(with_merge(7), "model.merges[1] is neither");
  expect_error(with_merge("a b"), "merge 1 (\"a\" + \"b\") needs the token \"ab\"");
  expect_error(with_merge("a "), "needs the token \"\"");
  expect_error(error_after([](Json& json) { json["model"]["merges"] = "t h"; }),
               "model.merges is not a list");
}

TEST(TokenizerJson, BadAddedTokens) {
  const auto with_added = [](const Json& token) {
    return error_after([&](Json& json) { json["added_tokens"] = {token, tiny_added("<b>", 301)}; });
  };
  expect_error(with_added(tiny_added("", 300)), "the added token 300 has no content");
  expect_error(with_added(tiny_added("<a>", -1)), "added_tokens[0]: \"id\" is -1");
  expect_error(with_added(tiny_added("<a>", 1 << 30)), "added_tokens[0]: \"id\" is 1073741824");
  expect_error(with_added(tiny_added("<a>", 301)), "\"<a>\" and \"<b>\" have the same id 301");
  expect_error(with_added(tiny_added("<a>", 97)), "\"a\" and \"<a>\" have the same id 97");
  expect_error(with_added(tiny_added(std::string(2000, 'x'), 300)), "has 2000 bytes");
  expect_error(with_added({{"id", 3}}), "added_tokens[0]: \"content\" is missing");
  expect_error(with_added("x"), "added_tokens[0]: must be a JSON object");
  expect_error(with_added(tiny_added("<a>", 300, {{"lstrip", "yes"}})),
               "\"lstrip\" must be true or false");
}

TEST(TokenizerJson, WhatIsNotSupportedIsNamed) {
  const auto with = [](const char* section, const Json& value) {
    return error_after([&](Json& json) { json[section] = value; });
  };
  expect_error(with("normalizer", {{"type", "Precompiled"}}),
               "the normalizer Precompiled is not supported");
  expect_error(with("pre_tokenizer", {{"type", "UnicodeScripts"}}),
               "the pre-tokenizer UnicodeScripts is not");
  expect_error(with("decoder", {{"type", "WordPiece"}}), "the decoder WordPiece");
  expect_error(with("post_processor", {{"type", "BertProcessing"}}),
               "the post-processor BertProcessing");
  expect_error(error_after([](Json& json) { json["model"]["type"] = "Unigram"; }),
               "of type Unigram; only byte-pair");
  expect_error(error_after([](Json& json) { json["model"]["dropout"] = 0.1; }),
               "model.dropout = 0.1");
  expect_error(error_after([](Json& json) { json["model"]["end_of_word_suffix"] = "</w>"; }),
               "end_of_word_suffix");
  expect_error(with("pre_tokenizer",
                    {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(a"}}}}),
               "pre_tokenizer: pattern: bad regular expression");
  expect_error(with("pre_tokenizer",
                    {{"type", "Split"}, {"behavior", "Odd"}, {"pattern", {{"String", "a"}}}}),
               "the split behavior Odd");
  expect_error(with("pre_tokenizer", {{"type", "Split"}, {"behavior", "Isolated"}}),
               "\"pattern\" is missing");
  expect_error(with("pre_tokenizer", {{"type", "Sequence"}}), "\"pretokenizers\" must be a list");
  expect_error(with("normalizer", {{"kind", "NFC"}}), "\"type\" is missing");
}

TEST(TokenizerJson, APathologicalPatternFailsTheText) {
  Json json = tiny_json();
  json["pre_tokenizer"] = {
      {"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(a|aa)*[bd]"}}}};
  const Tokenizer tokenizer = load_json(json);
  EXPECT_EQ(tokenizer.encode_markup("ab").size(), 2u);
  try {
    tokenizer.encode_markup(std::string(60, 'a'));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::LimitExceeded);
  }
}

TEST(TokenizerJson, BadConfigs) {
  const std::string json = tiny_json().dump();
  expect_error(error_of(json, "{"), "not valid JSON");
  expect_error(error_of(json, "[]"), "must be a JSON object");
  expect_error(error_of(json, R"({"added_tokens_decoder": {"x": {"content": "a"}}})"),
               "\"x\" is not a token id");
  expect_error(error_of(json, R"({"added_tokens_decoder": {"-1": {"content": "a"}}})"),
               "\"-1\" is not a token id");
  expect_error(error_of(json, R"({"added_tokens_decoder": []})"),
               "added_tokens_decoder: not an object");
  expect_error(error_of(json, R"({"add_bos_token": 1})"),
               "\"add_bos_token\" must be true or false");
}

}  // namespace
}  // namespace moeflux
