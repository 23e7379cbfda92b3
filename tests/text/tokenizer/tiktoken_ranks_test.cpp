#include <gtest/gtest.h>

#include "base/error.h"
#include "support/paths.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace moeflux {
namespace {

using Ids = std::vector<TokenId>;
using test::TempDir;

// a 0, b 1, " " 2, "ab" 3, " ab" 4, and the three bytes of a Han character 5 to 7.
const char* const kRanks = "YQ== 0\nYg== 1\nIA== 2\nYWI= 3\nIGFi 4\n5A== 5\nuA== 6\nrQ== 7\n";

std::string rank_error_of(const std::string& content) {
  const TempDir dir;
  const std::string path = dir.write("tiktoken.model", content);
  try {
    Tokenizer::from_tiktoken_file(path, "");
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind(path + ": ", 0), 0u) << error.what();
    return std::string(error.what()).substr(path.size() + 2);
  }
  return "no error";
}

TEST(TiktokenRanks, MergesByRank) {
  const TempDir dir;
  const std::string config =
      dir.write("tokenizer_config.json", R"({"eos_token": "[EOS]", "added_tokens_decoder":
      {"10": {"content": "[EOS]", "special": true, "normalized": false}}})");
  const Tokenizer tokenizer =
      Tokenizer::from_tiktoken_file(dir.write("tiktoken.model", kRanks), config);
  EXPECT_EQ(tokenizer.encode_markup("ab ab"), (Ids{3, 4}));
  EXPECT_EQ(tokenizer.encode_markup("aab\u4E2D"
                                    "a[EOS]"),
            (Ids{0, 3, 5, 6, 7, 0, 10}));
  EXPECT_EQ(tokenizer.decode(Ids{4, 5, 6, 7, 10}, true), " ab\u4E2D");
  EXPECT_EQ(tokenizer.eos(), 10);
}

TEST(TiktokenRanks, AcceptsWindowsLinesAndNoFinalNewline) {
  const TempDir dir;
  const Tokenizer tokenizer =
      Tokenizer::from_tiktoken_file(dir.write("tiktoken.model", "YQ== 0\r\nYg== 1"), "");
  EXPECT_EQ(tokenizer.encode_markup("ab"), (Ids{0, 1}));
}

TEST(TiktokenRanks, DamagedLinesAreErrors) {
  EXPECT_EQ(rank_error_of("YQ== 0\nYg==\n"), "line 2 is not a token in base64 and its rank");
  for (const char* content : {"YQ== x", "YQ= 0", "Y!== 0", "YQ== -1", "YQ== 4294967296",
                              "YQ== 99999999", " 0", "YQ== 1 2"}) {
    EXPECT_NE(rank_error_of(content).find("line 1 is not"), std::string::npos) << content;
  }
  EXPECT_NE(rank_error_of("YQ== 0\nYg== 0\n").find("same id 0"), std::string::npos);
  EXPECT_NE(rank_error_of("YQ== 0\nYQ== 1\n").find("twice"), std::string::npos);
  EXPECT_NE(rank_error_of("").find("empty"), std::string::npos);
}

}  // namespace
}  // namespace moeflux
