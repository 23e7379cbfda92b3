#include "source/checkpoint_files.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::TempDir;

TEST(ConfigFiles, Reads) {
  const TempDir dir;
  EXPECT_EQ(read_config(dir.write("config.json", R"({"a": 1})")).at("a"), 1);
}

TEST(ConfigFiles, RefusesWhatIsNoConfig) {
  const TempDir dir;
  expect_error(Errc::NotFound, {"config.json", "missing"},
               [&] { read_config(dir.file("config.json")); });
  expect_error(Errc::BadInput, {"list.json", "must be a JSON object"},
               [&] { read_config(dir.write("list.json", "[]")); });
  expect_error(Errc::BadInput, {"garbage.json", "not valid JSON"},
               [&] { read_config(dir.write("garbage.json", "{\"a\": ")); });
  expect_error(Errc::LimitExceeded, {"big.json", "bytes"},
               [&] { read_config(dir.write("big.json", std::string(5u << 20, ' '))); });
}

TEST(ConfigFiles, GenerationConfigIsOptional) {
  const TempDir dir;
  EXPECT_EQ(read_generation_config({dir.path()}), Json::object());
  dir.write("second/generation_config.json", R"({"top_k": 20})");
  EXPECT_EQ(read_generation_config({dir.path(), dir.file("second")}).at("top_k"), 20);
  dir.write("generation_config.json", "7");
  expect_error(Errc::BadInput, {"generation_config.json", "must be a JSON object"},
               [&] { read_generation_config({dir.path()}); });
}

TEST(ConfigFiles, TextConfig) {
  const Json flat{{"hidden_size", 1}};
  EXPECT_EQ(&text_config(flat), &flat);
  const Json wrapped{{"text_config", flat}};
  EXPECT_EQ(text_config(wrapped), flat);
}

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

using test::expect_error;
using test::TempDir;

TEST(ShardNames, PlainNamesStayInTheDirectory) {
  EXPECT_TRUE(is_plain_file_name("model.safetensors"));
  EXPECT_TRUE(is_plain_file_name("..model"));
  EXPECT_FALSE(is_plain_file_name(""));
  EXPECT_FALSE(is_plain_file_name("."));
  EXPECT_FALSE(is_plain_file_name(".."));
  EXPECT_FALSE(is_plain_file_name("../x"));
  EXPECT_FALSE(is_plain_file_name("/etc/passwd"));
  EXPECT_FALSE(is_plain_file_name("a\\b"));
  EXPECT_FALSE(is_plain_file_name(std::string_view("a\0b", 3)));
}

TEST(ShardNames, Numbers) {
  const auto number = parse_shard_number("model-00002-of-00013.safetensors");
  ASSERT_TRUE(number.has_value());
  EXPECT_EQ(number->index, 2);
  EXPECT_EQ(number->count, 13);
  for (const char* name :
       {"model.safetensors", "model-2.safetensors", "-of-2.safetensors", "model-1-of-.safetensors",
        "model-3-of-2.safetensors", "model-0-of-2.safetensors", "model-1-of-2.bin",
        "model-1-of-99999999999999999999.safetensors", "model-1-of-100001.safetensors"}) {
    EXPECT_FALSE(parse_shard_number(name).has_value()) << name;
  }
}

TEST(ShardNames, ListsModelFilesInOrder) {
  const TempDir dir;
  for (const char* name : {"model-b.safetensors", "model.safetensors", "adapter.safetensors",
                           "model.bin", "modeling.py", "sub/model.safetensors"}) {
    dir.write(name, "");
  }
  EXPECT_EQ(list_model_shards(dir.path()),
            (std::vector<std::string>{"model-b.safetensors", "model.safetensors"}));
  expect_error(Errc::Io, {"/absent", "cannot list"}, [&] { list_files(dir.file("absent")); });
}

TEST(ShardNames, MissingShardIsNamed) {
  const std::vector<std::string> names{"model-00001-of-00003.safetensors",
                                       "model-00003-of-00003.safetensors"};
  expect_error(Errc::NotFound, {"dir", "model-00002-of-00003.safetensors"},
               [&] { check_shards_complete("dir", names); });
  EXPECT_NO_THROW(
      check_shards_complete("dir", {"model-1-of-2.safetensors", "model-2-of-2.safetensors"}));
  EXPECT_NO_THROW(check_shards_complete("dir", {"model.safetensors"}));
}

}  // namespace
}  // namespace moeflux
