#include "engine/text_output.h"

#include <memory>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

class TextOutputTest : public testing::Test {
 protected:
  TextOutputTest() : source_(open_source(test::source_path("models/demo"))) {
    tokenizer_ = load_tokenizer(*source_);
  }

  struct Shown {
    std::string text;
    std::optional<std::size_t> stopped_by;
  };
  Shown show(const std::vector<TokenId>& tokens, std::vector<std::string> stops) {
    TextOutput output(*tokenizer_, std::move(stops));
    Shown shown;
    for (const TokenId token : tokens) {
      const StopMatcher::Output piece = output.feed(token);
      shown.text += piece.text;
      if (piece.stopped_by) return {shown.text, piece.stopped_by};
    }
    const StopMatcher::Output rest = output.finish();
    return {shown.text + rest.text, rest.stopped_by};
  }

  std::shared_ptr<const ModelSource> source_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(TextOutputTest, AllTextComesOut) {
  const std::string text = "17 + 25 = 42, \xc3\xbc \xf0\x9f\x98\x80.";
  EXPECT_EQ(show(tokenizer_->encode_data(text), {}).text, text);
  EXPECT_EQ(show(tokenizer_->encode_data(text), {"43", "="}).text, "17 + 25 ");
}

TEST_F(TextOutputTest, SpecialTokensHaveNoText) {
  const std::vector<TokenId> tokens = tokenizer_->encode_markup("a<|im_end|>b");
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(show(tokens, {}).text, "ab");
}

TEST_F(TextOutputTest, ABeginningOfAStopStringWaits) {
  TextOutput output(*tokenizer_, {"42."});
  std::string text;
  for (const TokenId token : tokenizer_->encode_data("= 42")) text += output.feed(token).text;
  EXPECT_EQ(text, "= ");
  EXPECT_EQ(output.finish().text, "42");
}

TEST_F(TextOutputTest, HalfACharacterWaitsAndMayCompleteAStopString) {
  // The last token is the first byte of a character: it becomes U+FFFD at the end.
  std::vector<TokenId> tokens = tokenizer_->encode_data("a\xf0\x9f\x98\x80");
  while (tokens.size() > 1 && tokenizer_->token_bytes(tokens.back()) != "\xf0") tokens.pop_back();
  if (tokens.size() < 2) GTEST_SKIP() << "SKIP: the vocabulary has this character whole";
  EXPECT_EQ(show(tokens, {}).text, "a\xef\xbf\xbd");
  const Shown stopped = show(tokens, {"a\xef\xbf\xbd"});
  EXPECT_EQ(stopped.text, "");
  EXPECT_EQ(stopped.stopped_by, 0u);
}

TEST_F(TextOutputTest, BadStopStringsAreRefused) {
  test::expect_error(Errc::BadInput, {}, [&] { TextOutput(*tokenizer_, {""}); });
}

}  // namespace
}  // namespace moeflux
