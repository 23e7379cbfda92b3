#include "engine/answer.h"

#include <memory>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "text/replies/reply_calls.h"
#include "text/replies/reply_format.h"
#include "text/tokenizer/tiny_tokenizer.h"

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

TEST_F(TextOutputTest, StopStringsDoNotReachIntoThoughts) {
  const std::string text = "<think>\nso 42.\n</think>\n\nso it is 42.";
  const std::vector<TokenId> tokens = tokenizer_->encode_markup(text);
  TextOutput output(*tokenizer_, {"42"}, special_marker_tokens(ReplyFormat::Plain, *tokenizer_),
                    ThoughtGate::Options{.format = ReplyFormat::Plain});
  std::string shown;
  std::optional<std::size_t> stopped_by;
  for (std::size_t i = 0; i < tokens.size() && !stopped_by; ++i) {
    const StopMatcher::Output piece = output.feed(tokens[i]);
    shown += piece.text;
    stopped_by = piece.stopped_by;
  }
  EXPECT_EQ(stopped_by, 0u);
  EXPECT_EQ(shown, "<think>\nso 42.\n</think>\n\nso it is ");
  EXPECT_EQ(show(tokens, {"42"}).stopped_by, 0u);
}

TEST_F(TextOutputTest, SpecialTokensHaveNoText) {
  const std::vector<TokenId> tokens = tokenizer_->encode_markup("a<|im_end|>b");
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(show(tokens, {}).text, "ab");
}

// Tokenizers of the kind of DeepSeek and Kimi: all markers are special tokens. From the ids of a
// reply, the parser must still see its calls.
TEST(TextOutputOfMarkers, CallsWhoseMarkersAreSpecialTokens) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "add"}}])");
  for (const ReplyFormat format : {ReplyFormat::DeepSeek, ReplyFormat::Kimi}) {
    const MarkedMarkup& markup = marked_markup(format);
    Json json = test::tiny_json();
    TokenId next = 300;
    for (const std::string_view marker :
         {markup.section_begin, markup.call_begin, markup.separator, markup.call_end,
          markup.section_end, kThoughtBegin, kThoughtEnd, std::string_view("<|end|>")})
      json["added_tokens"].push_back(test::tiny_added(std::string(marker), next++));
    const Tokenizer tokenizer = test::load_json(json);
    const CallShape shape = call_shape(format);
    const std::vector<TokenId> tokens = tokenizer.encode_markup(
        "<think>so</think>ok" + shape.block_begin + shape.before_name + "add" + shape.after_name +
        "{\"a\": 1}" + shape.after_arguments + shape.block_end + "<|end|>");
    const auto text_with = [&](std::vector<TokenId> shown) {
      TextOutput output(tokenizer, {}, std::move(shown));
      std::string text;
      for (const TokenId token : tokens) text += output.feed(token).text;
      return text + output.finish().text;
    };
    const std::string text = text_with(special_marker_tokens(format, tokenizer));
    EXPECT_EQ(text.find("<|end|>"), std::string::npos) << text;
    const Reply reply = parse_reply(format, {.tools = tools}, text);
    EXPECT_EQ(reply.reasoning, "so");
    EXPECT_EQ(reply.content, "ok");
    ASSERT_EQ(reply.calls.size(), 1u) << text;
    EXPECT_EQ(reply.calls[0].name, "add");
    EXPECT_EQ(reply.calls[0].arguments, "{\"a\": 1}");
    EXPECT_TRUE(reply.calls[0].complete);
    // Where nobody looks for calls, their markers stay out of sight.
    const std::string plain = text_with(special_marker_tokens(ReplyFormat::Plain, tokenizer));
    EXPECT_EQ(plain.find("tool"), std::string::npos) << plain;
    EXPECT_EQ(plain.find("<think>so</think>ok"), 0u) << plain;
    EXPECT_EQ(text_with({}).find("so"), 0u);
  }
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
