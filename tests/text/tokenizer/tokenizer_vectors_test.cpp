// Every recorded token-id vector, encoded, decoded and streamed: of the bundled model, of one small
// vocabulary for each way to split text, and of released vocabularies where ../shared has them.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/utf8.h"
#include "support/paths.h"
#include "support/released.h"
#include "text/tokenizer/tiny_tokenizer.h"

namespace moeflux {
namespace {

using Ids = std::vector<TokenId>;
using test::shared_path;
using test::TempDir;

// Unpacks ../shared/tokenizers/NAME.tokenizer.json.xz into `dir`; "" when that fails.
std::string unpack(const std::string& name, const TempDir& dir) {
  const std::string out = dir.file(name + ".json");
  const std::string command =
      "xz -dc '" + shared_path("tokenizers/" + name + ".tokenizer.json.xz") + "' > '" + out + "'";
  return std::system(command.c_str()) == 0 ? out : "";
}

// Every line of a file: text, ids, what they decode to, and perhaps what is shown of that.
void check_vectors(const Tokenizer& tokenizer, const std::string& path, int n_expected) {
  std::ifstream file(path);
  int n = 0;
  for (std::string line; std::getline(file, line); ++n) {
    const Json json = parse_json(line, path);
    const auto ids = json["ids"].get<Ids>();
    const auto decoded = json["decoded"].get<std::string>();
    ASSERT_EQ(tokenizer.encode_markup(json["text"].get<std::string>()), ids) << line;
    ASSERT_EQ(tokenizer.decode(ids), decoded) << line;
    if (json.contains("with_special")) {
      ASSERT_EQ(tokenizer.with_special_tokens(ids), json["with_special"].get<Ids>()) << line;
    }
    if (json.contains("shown")) {
      ASSERT_EQ(tokenizer.decode(ids, true), json["shown"].get<std::string>()) << line;
    }
    StreamDecoder decoder(tokenizer);
    std::string streamed;
    for (const TokenId id : ids) streamed += decoder.feed(id);
    ASSERT_EQ(streamed + decoder.finish(), decoded) << line;
  }
  EXPECT_EQ(n, n_expected) << path;
}

std::string vectors_of(const std::string& name) {
  return test::data_path("tokenizers/" + name + ".vectors.jsonl");
}

Tokenizer small_tokenizer(const std::string& name) {
  return Tokenizer::from_json_file(test::data_path("tokenizers/" + name + ".tokenizer.json"), "");
}

// One small vocabulary for every way that released ones split text.
struct VectorSet {
  const char* name;
  int n_texts;
};

class SmallTokenizerKinds : public testing::TestWithParam<VectorSet> {};

TEST_P(SmallTokenizerKinds, AllVectorsAgree) {
  check_vectors(small_tokenizer(GetParam().name), vectors_of(GetParam().name), GetParam().n_texts);
}

INSTANTIATE_TEST_SUITE_P(
    Text, SmallTokenizerKinds,
    testing::Values(VectorSet{"gpt2", 400}, VectorSet{"llama3", 400}, VectorSet{"qwen", 400},
                    VectorSet{"kimi", 400}, VectorSet{"deepseek", 400}, VectorSet{"spm_words", 400},
                    VectorSet{"gpt4o", 2000}, VectorSet{"glm", 2000}, VectorSet{"minimax", 2000},
                    VectorSet{"neox", 2000}, VectorSet{"spm_prepend", 2000},
                    VectorSet{"spm_metaspace", 2000}, VectorSet{"spm_replace", 2000}),
    [](const auto& test) { return std::string(test.param.name); });

// The files of flash-moe are read with the split rule and the normal form of Qwen.
TEST(SmallTokenizers, ExportToFlashMoe) {
  const Tokenizer tokenizer = small_tokenizer("qwen");
  const TempDir dir;
  std::ifstream source(test::data_path("tokenizers/qwen.tokenizer.json"));
  const Tokenizer bpet = Tokenizer::from_bpet_file(
      dir.write("tokenizer.bin", test::bpet_of(nlohmann::json::parse(source))));
  const Tokenizer vocab =
      Tokenizer::from_vocab_bin_file(dir.write("vocab.bin", test::vocab_bin_of(tokenizer)));
  std::ifstream file(vectors_of("qwen"));
  for (std::string line; std::getline(file, line);) {
    const Json json = parse_json(line, "vectors");
    const auto ids = json["ids"].get<Ids>();
    ASSERT_EQ(bpet.encode_markup(json["text"].get<std::string>()), ids) << line;
    ASSERT_EQ(bpet.decode(ids), json["decoded"].get<std::string>()) << line;
    ASSERT_EQ(vocab.decode(ids), json["decoded"].get<std::string>()) << line;
  }
  for (const AddedToken& token : tokenizer.added_tokens())
    EXPECT_EQ(bpet.is_special(token.id), token.special) << token.content;
}

TEST(SmallTokenizers, TokensAroundATextThatIsNoChat) {
  const Tokenizer llama = small_tokenizer("llama3");
  const Ids hello = llama.encode_markup("Hello");
  Ids with_bos{*llama.find_token("<|begin_of_text|>")};
  with_bos.insert(with_bos.end(), hello.begin(), hello.end());
  EXPECT_EQ(llama.with_special_tokens(hello), with_bos);
  const Tokenizer replace = small_tokenizer("spm_replace");
  EXPECT_EQ(replace.with_special_tokens({7}), (Ids{*replace.find_token("<bos>"), 7}));
  EXPECT_EQ(small_tokenizer("gpt2").with_special_tokens(hello), hello);
}

TEST(DemoTokenizer, AllVectorsAgree) {
  const std::string folder = test::source_path("models/demo/");
  const Tokenizer tokenizer =
      Tokenizer::from_json_file(folder + "tokenizer.json", folder + "tokenizer_config.json");
  check_vectors(tokenizer, vectors_of("demo"), 700);
  EXPECT_EQ(tokenizer.eos(), tokenizer.find_token("<|im_end|>"));
  EXPECT_EQ(tokenizer.bos(), std::nullopt);
  EXPECT_FALSE(tokenizer.add_bos());
}

class ReleasedTokenizers : public testing::TestWithParam<const char*> {};

TEST_P(ReleasedTokenizers, AllVectorsAgree) {
  const std::string name = GetParam();
  MOEFLUX_NEED_SHARED("tokenizers/" + name + ".vectors.jsonl");
  const TempDir dir;
  const std::string path = unpack(name, dir);
  if (path.empty()) GTEST_SKIP() << "SKIP: xz is not on this machine";
  check_vectors(Tokenizer::from_json_file(path, ""),
                shared_path("tokenizers/" + name + ".vectors.jsonl"), 700);
}

INSTANTIATE_TEST_SUITE_P(Real, ReleasedTokenizers, testing::Values("qwen3_5", "deepseek_v3"),
                         [](const auto& test) { return std::string(test.param); });

TEST(ReleasedTokenizers, OfAFolder) {
  const std::string folder = test::released_folder();
  if (folder.empty()) GTEST_SKIP() << "SKIP: MOEFLUX_RELEASED names no folder";
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/tokenizers")) {
    const std::string path = entry.path().string();
    SCOPED_TRACE(path);
    const std::string config = path + "/tokenizer_config.json";
    check_vectors(Tokenizer::from_json_file(path + "/tokenizer.json",
                                            std::filesystem::exists(config) ? config : ""),
                  path + "/vectors.jsonl", 2000);
    ++n;
  }
  EXPECT_GT(n, 0);
}

// Ids, flags and chat pieces of Qwen3.5 that other parts of the project rely on, and its export to
// tokenizer.bin.
TEST(ReleasedQwen, KnownFactsAndExport) {
  MOEFLUX_NEED_SHARED("tokenizers/qwen3_5.tokenizer.json.xz");
  const TempDir dir;
  const std::string path = unpack("qwen3_5", dir);
  if (path.empty()) GTEST_SKIP() << "SKIP: xz is not on this machine";
  const Tokenizer tokenizer = Tokenizer::from_json_file(path, "");
  EXPECT_EQ(tokenizer.n_ids(), 248'070u);
  EXPECT_EQ(tokenizer.encode_markup("<|im_start|>user\n"), (Ids{248'045, 846, 198}));
  EXPECT_EQ(tokenizer.encode_markup("<|im_end|>\n<|im_start|>assistant\n<think>\n"),
            (Ids{248'046, 198, 248'045, 74'455, 198, 248'068, 198}));
  EXPECT_TRUE(tokenizer.is_special(248'046));
  EXPECT_FALSE(tokenizer.is_special(248'068));

  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  const Tokenizer bpet = Tokenizer::from_bpet_file(dir.write("tokenizer.bin", test::bpet_of(json)));
  check_vectors(bpet, shared_path("tokenizers/qwen3_5.vectors.jsonl"), 700);
  const Tokenizer vocab =
      Tokenizer::from_vocab_bin_file(dir.write("vocab.bin", test::vocab_bin_of(tokenizer)));
  const Ids ids = tokenizer.encode_markup("caf\u00E9 \u4F60\u597D \U0001F600<|im_end|>");
  EXPECT_EQ(vocab.decode(ids), tokenizer.decode(ids));
  // The format has no flags; what is special is guessed from the form <|name|>, which fits the
  // control tokens.
  for (const AddedToken& token : tokenizer.added_tokens()) {
    EXPECT_TRUE(bpet.is_special(token.id) || !token.special) << token.content;
  }
  EXPECT_FALSE(bpet.is_special(248'068));
}

}  // namespace
}  // namespace moeflux
