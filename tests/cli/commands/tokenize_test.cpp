#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

TEST(TokenizeTest, IdsGoBackToTheText) {
  for (const std::string text :
       {"Hello there, what is 12 + 30?", "caf\xC3\xA9 \xF0\x9F\x98\x80 \xE4\xBD\xA0\xE5\xA5\xBD",
        "  two  spaces\tand\n\nlines", "[1,2] ++ --"}) {
    const Outcome ids = run_moeflux({"tokenize", "--ids"}, {.text = text});
    ASSERT_EQ(ids.exit_code, 0) << ids.err;
    EXPECT_EQ(run_moeflux({"tokenize", "--decode"}, {.text = ids.out}).out, text + "\n");
    EXPECT_EQ(run_moeflux({"tokenize", "--decode", ids.out}).out, text + "\n");
  }
}

TEST(TokenizeTest, FilesAreTakenByteForByte) {
  const TempDir directory;
  const std::string text = " Hello\r\n\n";
  const std::string file = directory.write("text", text);
  const Outcome ids = run_moeflux({"tokenize", "--ids", "-f", file});
  EXPECT_EQ(run_moeflux({"tokenize", "--decode", ids.out}).out, text + "\n");
  // The last newline of standard input is what `echo` adds.
  EXPECT_EQ(run_moeflux({"tokenize", "--ids"}, {.text = text + "\n"}).out, ids.out);
  EXPECT_EQ(run_moeflux({"tokenize", "--ids", "-f", "-"}, {.text = text + "\n"}).out, ids.out);
}

TEST(TokenizeTest, ShowsIdAndPiecePerLine) {
  const Outcome outcome =
      run_moeflux({"tokenize", source_path("models/demo"), "--special", "<|im_end|>\nHi"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("\"<|im_end|>\"  special\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\"\\n\"\n"), std::string::npos) << outcome.out;
}

TEST(TokenizeTest, ControlTokensAreTextUnlessAskedFor) {
  const Json plain =
      parse_json(run_moeflux({"tokenize", "--json", "--ids", "<|im_end|>"}).out, "stdout");
  const Json special = parse_json(
      run_moeflux({"tokenize", "--json", "--ids", "--special", "<|im_end|>"}).out, "stdout");
  EXPECT_GT(plain["count"], 1);
  EXPECT_EQ(special["count"], 1);
}

TEST(TokenizeTest, JsonGivesBytesOfHalfACharacter) {
  const Outcome outcome = run_moeflux({"tokenize", "--json", "\xF0\x9F\xA6\x84"});
  const Json json = parse_json(outcome.out, "stdout");
  std::string joined;
  for (const Json& token : json["tokens"]) {
    if (token["piece"].is_string()) {
      joined += token["piece"].get<std::string>();
    } else {
      for (const Json& byte : token["piece"]) joined += static_cast<char>(byte.get<int>());
    }
  }
  EXPECT_EQ(joined, "\xF0\x9F\xA6\x84");
}

TEST(TokenizeTest, BadIdsAndMissingTokenizer) {
  const Outcome bad = run_moeflux({"tokenize", "--decode", "12 abc"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_NE(bad.err.find("\"abc\" is not a token id"), std::string::npos) << bad.err;
  const Outcome none = run_moeflux({"tokenize", source_path("tests/fixtures/qwen-fp8"), "hi"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.err.find("no tokenizer"), std::string::npos) << none.err;
}

}  // namespace
}  // namespace moeflux::test
