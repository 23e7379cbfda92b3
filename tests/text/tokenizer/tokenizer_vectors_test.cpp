// Every token-id vector of the real vocabularies in ../shared, encoded, decoded and streamed.
#include <cstdio>
#include <fstream>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/utf8.h"
#include "support/paths.h"
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

void check_vectors(const Tokenizer& tokenizer, const std::string& name) {
  std::ifstream file(shared_path("tokenizers/" + name + ".vectors.jsonl"));
  int n = 0;
  for (std::string line; std::getline(file, line); ++n) {
    const Json json = parse_json(line, name);
    const auto ids = json["ids"].get<Ids>();
    const auto decoded = json["decoded"].get<std::string>();
    ASSERT_EQ(tokenizer.encode_markup(json["text"].get<std::string>()), ids) << line;
    ASSERT_EQ(tokenizer.decode(ids), decoded) << line;
    StreamDecoder decoder(tokenizer);
    std::string streamed;
    for (const TokenId id : ids) streamed += decoder.feed(id);
    ASSERT_EQ(streamed + decoder.finish(), decoded) << line;
  }
  EXPECT_EQ(n, 700);
}

class TokenizerVectors : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerVectors, AllAgree) {
  const std::string name = GetParam();
  MOEFLUX_NEED_SHARED("tokenizers/" + name + ".vectors.jsonl");
  const TempDir dir;
  const std::string path = unpack(name, dir);
  if (path.empty()) GTEST_SKIP() << "SKIP: xz is not on this machine";
  check_vectors(Tokenizer::from_json_file(path, ""), name);
}

INSTANTIATE_TEST_SUITE_P(Real, TokenizerVectors, testing::Values("qwen3_5", "deepseek_v3"));

TEST(DemoTokenizer, AllVectorsAgree) {
  MOEFLUX_NEED_SHARED("tokenizers/demo.vectors.jsonl");
  const std::string folder = shared_path("demo-model/model/");
  const Tokenizer tokenizer =
      Tokenizer::from_json_file(folder + "tokenizer.json", folder + "tokenizer_config.json");
  check_vectors(tokenizer, "demo");
  EXPECT_EQ(tokenizer.eos(), tokenizer.find_token("<|im_end|>"));
  EXPECT_EQ(tokenizer.bos(), std::nullopt);
  EXPECT_FALSE(tokenizer.add_bos());
}

// Ids, flags and chat pieces of Qwen3.5 that other parts of the project rely on, and its export to
// tokenizer.bin.
TEST(QwenTokenizer, KnownFactsAndExport) {
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
  check_vectors(bpet, "qwen3_5");
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
