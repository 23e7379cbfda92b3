#include "source/text_assets.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::TempDir;

TEST(TextAssets, NothingThere) {
  const TempDir dir;
  const TextAssets text = find_text_assets({dir.path()});
  EXPECT_EQ(text.tokenizer_json, "");
  EXPECT_EQ(text.tokenizer_config, "");
  EXPECT_EQ(text.tokenizer_bin, "");
  EXPECT_EQ(text.vocab_bin, "");
  EXPECT_EQ(text.tiktoken_model, "");
  EXPECT_TRUE(text.chat_template.is_null());
}

TEST(TextAssets, FirstDirectoryWins) {
  const TempDir dir;
  dir.write("a/tokenizer.json", "{}");
  dir.write("b/tokenizer.json", "{}");
  dir.write("b/vocab.bin", "");
  dir.write("b/tokenizer.bin", "");
  dir.write("b/tiktoken.model", "");
  const TextAssets text = find_text_assets({dir.file("a"), dir.file("b")});
  EXPECT_EQ(text.tokenizer_json, dir.file("a/tokenizer.json"));
  EXPECT_EQ(text.vocab_bin, dir.file("b/vocab.bin"));
  EXPECT_EQ(text.tokenizer_bin, dir.file("b/tokenizer.bin"));
  EXPECT_EQ(text.tiktoken_model, dir.file("b/tiktoken.model"));
}

TEST(TextAssets, TemplateFilesInOrderOfPreference) {
  const TempDir dir;
  const auto chat_template = [&] { return find_text_assets({dir.path()}).chat_template; };
  dir.write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(chat_template(), "json");
  dir.write("tokenizer_config.json", R"({"eos_token": "x"})");
  EXPECT_EQ(chat_template(), "json");
  dir.write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(chat_template(), "config");
  dir.write("chat_template.jinja", "jinja {{ x }}\n");
  EXPECT_EQ(chat_template(), "jinja {{ x }}\n");
}

TEST(TextAssets, NamedTemplatesAreKeptAsTheList) {
  const TempDir dir;
  dir.write("tokenizer_config.json",
            R"({"chat_template": [{"name": "default", "template": "a"},
                                  {"name": "tool_use", "template": "b"}]})");
  const Json list = find_text_assets({dir.path()}).chat_template;
  ASSERT_TRUE(list.is_array());
  EXPECT_EQ(list.at(1).at("template"), "b");
}

TEST(TextAssets, RefusesWhatCannotBeATemplate) {
  const TempDir dir;
  for (const char* bad : {"3", "{}", "[3]", R"([{"name": "x"}])", R"([{"template": "x"}])",
                          R"([{"name": 1, "template": "x"}])"}) {
    dir.write("tokenizer_config.json", R"({"chat_template": )" + std::string(bad) + "}");
    expect_error(Errc::BadInput, {"tokenizer_config.json", "\"chat_template\""},
                 [&] { find_text_assets({dir.path()}); });
  }
  dir.write("tokenizer_config.json", "[]");
  expect_error(Errc::BadInput, {"tokenizer_config.json", "must be a JSON object"},
               [&] { find_text_assets({dir.path()}); });
  dir.write("chat_template.jinja", "abc\xFF");
  expect_error(Errc::BadInput, {"chat_template.jinja", "UTF-8 at byte 3"},
               [&] { find_text_assets({dir.path()}); });
}

}  // namespace
}  // namespace moeflux
