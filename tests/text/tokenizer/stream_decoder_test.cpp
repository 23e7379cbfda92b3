#include <random>

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/tokenizer/tiny_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {
namespace {

using test::load_json;
using test::tiny_added;
using test::tiny_json;

Tokenizer with_special() {
  Json json = tiny_json();
  json["added_tokens"] = {tiny_added("<|end|>", 256),
                          tiny_added("<think>", 257, {{"special", false}})};
  return load_json(json);
}

TEST(StreamDecoder, HoldsBackUnfinishedCharacters) {
  const Tokenizer tokenizer = with_special();
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.feed('a'), "a");
  EXPECT_EQ(decoder.feed(0xF0), "");
  EXPECT_EQ(decoder.feed(0x9F), "");
  EXPECT_EQ(decoder.feed(0x98), "");
  EXPECT_EQ(decoder.feed(0x80), "\U0001F600");
  EXPECT_EQ(decoder.feed(0xC3), "");
  EXPECT_EQ(decoder.finish(), kReplacementCharacter);
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, ReplacesWhatCannotBecomeACharacterAtOnce) {
  const Tokenizer tokenizer = with_special();
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.feed(0xFF), kReplacementCharacter);
  EXPECT_EQ(decoder.feed(0xE4), "");
  EXPECT_EQ(decoder.feed('x'), std::string(kReplacementCharacter) + "x");
}

TEST(StreamDecoder, SkipsSpecialTokensOnly) {
  const Tokenizer tokenizer = with_special();
  StreamDecoder decoder(tokenizer, true);
  EXPECT_EQ(decoder.feed(256), "");
  EXPECT_EQ(decoder.feed(257), "<think>");
  EXPECT_EQ(decoder.feed(99'999), "");  // no such token
  EXPECT_EQ(decoder.feed(-1), "");
  StreamDecoder all(tokenizer, false);
  EXPECT_EQ(all.feed(256), "<|end|>");
}

TEST(StreamDecoder, TogetherTheTextsAreWhatDecodeMakes) {
  const Tokenizer tokenizer = with_special();
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> ids(random() % 12);
    for (TokenId& id : ids)
      id = static_cast<TokenId>(random() % 4 == 0 ? random() % 258 : 0x80 + random() % 128);
    std::string bytes;
    for (const bool skip : {false, true}) {
      StreamDecoder decoder(tokenizer, skip);
      std::string text;
      for (const TokenId id : ids) {
        const std::string part = decoder.feed(id);
        ASSERT_EQ(find_invalid_utf8(part), std::string::npos);
        text += part;
        if (!skip) bytes += tokenizer.token_bytes(id);
      }
      text += decoder.finish();
      ASSERT_EQ(text, tokenizer.decode(ids, skip));
    }
    ASSERT_EQ(tokenizer.decode(ids), replace_invalid_utf8(bytes));
  }
}

}  // namespace
}  // namespace moeflux
