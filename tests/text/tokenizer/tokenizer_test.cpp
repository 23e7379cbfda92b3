#include "text/tokenizer/tokenizer.h"

#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/tiny_tokenizer.h"
#include "text/tokenizer/unicode.h"

namespace moeflux {
namespace {

using Ids = std::vector<TokenId>;
using test::load_json;
using test::tiny_added;
using test::tiny_json;

// Bytes, "th" 256, "the" 257, "<|" 258; control tokens from 300.
Tokenizer chat_tokenizer() {
  Json json = tiny_json({{"t", "h"}, {"th", "e"}, {"<", "|"}});
  json["added_tokens"] = {tiny_added("<|im_end|>", 300),
                          tiny_added("<think>", 301, {{"special", false}})};
  return load_json(json);
}

// Text in which [ and ] enclose data.
MarkedText marked(std::string_view text) {
  MarkedText out;
  for (const char c : text) {
    if (c == '[') {
      out.data.push_back({out.text.size(), out.text.size()});
    } else if (c == ']') {
      out.data.back().end = out.text.size();
    } else {
      out.text += c;
    }
  }
  return out;
}

TEST(Tokenizer, EncodesAndDecodes) {
  const Tokenizer tokenizer = chat_tokenizer();
  EXPECT_EQ(tokenizer.encode_markup("the<|im_end|>"), (Ids{257, 300}));
  EXPECT_EQ(tokenizer.decode(Ids{257, 300}), "the<|im_end|>");
  EXPECT_EQ(tokenizer.decode(Ids{257, 300, 301}, true), "the<think>");
  EXPECT_EQ(tokenizer.encode_markup(""), (Ids{}));
  EXPECT_EQ(tokenizer.decode({}), "");
}

TEST(Tokenizer, DataNeverBecomesAControlToken) {
  const Tokenizer tokenizer = chat_tokenizer();
  const Ids plain = tokenizer.encode_data("<|im_end|>");
  EXPECT_EQ(plain, (Ids{258, 'i', 'm', '_', 'e', 'n', 'd', '|', '>'}));
  EXPECT_EQ(tokenizer.encode(MarkedText::all_data("<|im_end|>")), plain);
  EXPECT_EQ(tokenizer.encode(MarkedText::all_markup("<|im_end|>")), (Ids{300}));
  EXPECT_EQ(tokenizer.encode(marked("[<|im_end|>]<|im_end|>")).back(), 300);
  // One byte of data anywhere is enough.
  const std::string token = "<|im_end|>";
  for (std::size_t i = 0; i < token.size(); ++i) {
    EXPECT_EQ(tokenizer.encode({token, {{i, i + 1}}}), plain) << i;
  }
}

// Every way to mark the bytes of a text: only whole tokens of markup are found, and the rest is as
// without tokens.
TEST(Tokenizer, ForgingFailsForEveryMarking) {
  const Tokenizer tokenizer = chat_tokenizer();
  const std::string text = "<think>a";
  for (unsigned bits = 0; bits < 256; ++bits) {
    MarkedText in{text, {}};
    for (std::size_t i = 0; i < 8; ++i) {
      if ((bits >> i & 1) == 0) continue;
      if (!in.data.empty() && in.data.back().end == i) {
        ++in.data.back().end;
      } else {
        in.data.push_back({i, i + 1});
      }
    }
    const bool whole = (bits & 0x7F) == 0;
    EXPECT_EQ(tokenizer.encode(in), whole ? (Ids{301, 'a'}) : tokenizer.encode_data(text)) << bits;
  }
}

TEST(Tokenizer, MarkupAndDataAreOneText) {
  const Tokenizer tokenizer = chat_tokenizer();
  EXPECT_EQ(tokenizer.encode(marked("t[h]e")), (Ids{257}));  // merges cross the border
  EXPECT_EQ(tokenizer.encode(marked("<|im_end|>[th]e")), (Ids{300, 257}));
}

TEST(Tokenizer, NormalizedTokensRespectMarksToo) {
  Json json = tiny_json();
  json["normalizer"] = {{"type", "Sequence"},
                        {"normalizers", {{{"type", "NFKC"}}, {{"type", "Lowercase"}}}}};
  json["added_tokens"] = {tiny_added("<END>", 256, {{"normalized", true}})};
  const Tokenizer tokenizer = load_json(json);
  EXPECT_EQ(tokenizer.encode_markup("<End>"), (Ids{256}));
  EXPECT_EQ(tokenizer.encode_markup("\uFF1Cend\uFF1E"), (Ids{256}));
  EXPECT_EQ(tokenizer.encode_data("<end>"), (Ids{'<', 'e', 'n', 'd', '>'}));
  EXPECT_EQ(tokenizer.encode(marked("[a]<END>[<END>]<end>")),
            (Ids{'a', 256, '<', 'e', 'n', 'd', '>', 256}));
  EXPECT_EQ(tokenizer.encode(marked("<E[N]D>")), (Ids{'<', 'e', 'n', 'd', '>'}));
  EXPECT_EQ(tokenizer.encode(marked("[\uFF1C]end>")), (Ids{'<', 'e', 'n', 'd', '>'}));
}

TEST(Tokenizer, InvalidUtf8IsRefusedWithItsPlace) {
  const Tokenizer tokenizer = chat_tokenizer();
  try {
    tokenizer.encode_markup("abc\xFFxyz");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::BadInput);
    EXPECT_NE(std::string(error.what()).find("at byte 3"), std::string::npos) << error.what();
  }
  EXPECT_THROW(tokenizer.encode_data("\xE2\x82"), Error);
  EXPECT_EQ(tokenizer.encode_data(std::string_view("a\0b", 3)), (Ids{'a', 0, 'b'}));
}

TEST(Tokenizer, AnswersAboutItsTokens) {
  const Tokenizer tokenizer = chat_tokenizer();
  EXPECT_EQ(tokenizer.n_ids(), 302u);
  EXPECT_EQ(tokenizer.token_bytes(257), "the");
  EXPECT_EQ(tokenizer.token_bytes(' '), " ");
  EXPECT_EQ(tokenizer.token_bytes(0xC3), "\xC3");
  EXPECT_EQ(tokenizer.token_bytes(280), "");  // a gap
  EXPECT_EQ(tokenizer.token_bytes(-5), "");
  EXPECT_EQ(tokenizer.token_bytes(1'000'000), "");
  EXPECT_EQ(tokenizer.find_token("<|im_end|>"), 300);
  EXPECT_EQ(tokenizer.find_token("the"), 257);
  EXPECT_EQ(tokenizer.find_token(" "), ' ');
  EXPECT_EQ(tokenizer.find_token("nothing"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(300));
  EXPECT_FALSE(tokenizer.is_special(301));
  EXPECT_TRUE(tokenizer.is_added(301));
  EXPECT_FALSE(tokenizer.is_added(257));
  EXPECT_FALSE(tokenizer.is_added(-1));
  EXPECT_FALSE(tokenizer.is_special(302));
}

TEST(Tokenizer, RandomTextComesBackNormalized) {
  Json json = tiny_json({{"t", "h"}, {"\xC3", "\xA9"}});
  json["normalizer"] = {{"type", "NFC"}};
  const Tokenizer tokenizer = load_json(json);
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::size_t n = random() % 20; n > 0; --n) {
      // ASCII, combining marks, the older scripts, anything.
      constexpr char32_t kFirst[] = {0, 0x300, 0, 0}, kCount[] = {0x80, 0x70, 0x3000, 0x110000};
      const std::size_t kind = random() % 4;
      char32_t c = kFirst[kind] + static_cast<char32_t>(random() % kCount[kind]);
      if (c >= 0xD800 && c < 0xE000) c = 'x';
      append_utf8(text, c);
    }
    ASSERT_EQ(tokenizer.decode(tokenizer.encode_markup(text)),
              to_normal_form(text, NormalForm::Nfc));
    ASSERT_EQ(tokenizer.encode_data(text), tokenizer.encode_markup(text));
  }
}

TEST(Tokenizer, ManyThreadsMayEncode) {
  const Tokenizer tokenizer = chat_tokenizer();
  const std::string text = "the thin other<|im_end|> theme ";
  const Ids expected = tokenizer.encode_markup(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 300; ++n) wrong[i] += tokenizer.encode_markup(text) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// ---- StreamDecoder

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
