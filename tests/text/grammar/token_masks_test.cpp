// Masks over a vocabulary: against the definition, with control tokens, and with tokens that are
// parts of characters.
#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "text/grammar/vocabulary_support.h"
#include "text/tokenizer/tiny_tokenizer.h"

namespace moeflux {
namespace {

using test::expect_error;

TokenMasks masks_for(std::string_view gbnf, const std::shared_ptr<const TokenTrie>& trie) {
  return {std::make_shared<ByteAutomaton>(compile_grammar(parse_gbnf(gbnf), trie->markers())),
          trie};
}

std::vector<std::string> allowed_texts(TokenMasks& masks, TokenMasks::Cursor& cursor,
                                       const Tokenizer& tokenizer) {
  std::vector<std::uint8_t> allowed(masks.n_ids());
  masks.fill(cursor, allowed);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    if (allowed[i] != 0) texts.emplace_back(tokenizer.token_bytes(static_cast<TokenId>(i)));
  }
  return texts;
}

using Texts = std::vector<std::string>;

// A token is allowed if and only if its bytes continue the text.
TEST(TokenMasks, AgreeWithTheAutomatonTokenByToken) {
  const auto trie = test::demo_trie();
  const Grammar grammar = json_schema_grammar(parse_json(
      R"({"properties": {"name": {"type": "string", "maxLength": 9}, "n": {"type": "integer"},
                     "list": {"type": "array", "items": {"enum": ["red", "green"]}}}})",
      "test"));
  const auto automaton = std::make_shared<ByteAutomaton>(compile_grammar(grammar));
  TokenMasks masks(automaton, trie);
  LazyAutomaton direct(automaton);
  test::Random random(4);
  for (int round = 0; round < 10; ++round) {
    TokenMasks::Cursor cursor = masks.start();
    LazyAutomaton::StateId state = direct.start();
    std::vector<std::uint8_t> allowed(masks.n_ids());
    for (int step = 0; step < 60 && !cursor.must_end(); ++step) {
      masks.fill(cursor, allowed);
      for (std::size_t i = 0; i < allowed.size(); ++i) {
        const std::string_view bytes = trie->bytes(static_cast<TokenId>(i));
        const bool fits = !bytes.empty() && direct.walk(state, bytes) != LazyAutomaton::kDead;
        ASSERT_EQ(allowed[i] != 0, fits) << i << " " << bytes;
      }
      const TokenId token = test::any_allowed(allowed, random);
      state = direct.walk(state, trie->bytes(token));
      ASSERT_TRUE(masks.advance(cursor, token));
      ASSERT_EQ(cursor.may_end(), direct.may_end(state));
    }
  }
}

TEST(TokenMasks, TokensOfSeveralBytesAndPartsOfCharacters) {
  // U+00E4 is C3 A4; "\xA4x" ends a character and goes on.
  const Tokenizer tokenizer =
      test::load_json(test::tiny_json({{"a", "b"}, {"ab", "c"}, {"\xA4", "x"}, {"a", "\xC3"}}));
  const auto trie = test::trie_of(tokenizer);
  TokenMasks masks = masks_for("root ::= \"ab\" [\u00e4\u00f6] \"x\" | \"a\u00e4\"", trie);
  TokenMasks::Cursor cursor = masks.start();
  EXPECT_EQ(allowed_texts(masks, cursor, tokenizer), (Texts{"a", "ab", "a\xC3"}));
  ASSERT_TRUE(masks.advance(cursor, *tokenizer.find_token("ab")));
  EXPECT_EQ(allowed_texts(masks, cursor, tokenizer), Texts{"\xC3"});
  ASSERT_TRUE(masks.advance(cursor, *tokenizer.find_token("\xC3")));
  EXPECT_EQ(allowed_texts(masks, cursor, tokenizer), (Texts{"\xA4", "\xB6", "\xA4x"}));
  EXPECT_FALSE(masks.advance(cursor, *tokenizer.find_token("a")));
  ASSERT_TRUE(masks.advance(cursor, *tokenizer.find_token("\xA4x")));
  EXPECT_TRUE(cursor.may_end());
  EXPECT_TRUE(cursor.must_end());
  EXPECT_TRUE(allowed_texts(masks, cursor, tokenizer).empty());
}

// Control tokens come where a literal spells them, and nowhere else.
TEST(TokenMasks, ControlTokensOnlyInLiterals) {
  Json json = test::tiny_json();
  json["added_tokens"] =
      Json::array({test::tiny_added("<call>", 256), test::tiny_added("<end>", 257)});
  const Tokenizer tokenizer = test::load_json(json);
  const auto trie = test::trie_of(tokenizer);
  TokenMasks masks = masks_for("root ::= \"x<call>{\" [^}]* \"}\"", trie);
  TokenMasks::Cursor cursor = masks.start();
  EXPECT_EQ(allowed_texts(masks, cursor, tokenizer), Texts{"x"});
  ASSERT_TRUE(masks.advance(cursor, *tokenizer.find_token("x")));
  EXPECT_EQ(allowed_texts(masks, cursor, tokenizer), (Texts{"<", "<call>"}));
  TokenMasks::Cursor spelled = cursor;
  ASSERT_TRUE(masks.advance(cursor, 256));
  for (const char c : std::string("<call>")) ASSERT_TRUE(masks.advance(spelled, c));
  EXPECT_EQ(allowed_texts(masks, cursor, tokenizer), Texts{"{"});
  EXPECT_EQ(allowed_texts(masks, spelled, tokenizer), Texts{"{"});
  ASSERT_TRUE(masks.advance(cursor, '{'));
  std::vector<std::uint8_t> allowed(masks.n_ids());
  masks.fill(cursor, allowed);
  EXPECT_EQ(allowed['<'], 1);
  EXPECT_EQ(allowed[256], 0);
  EXPECT_EQ(allowed[257], 0);
  EXPECT_FALSE(masks.advance(cursor, 256));
}

TEST(TokenMasks, RefuseAVocabularyWithoutTheBytes) {
  const std::vector<std::string> tokens = {"a", "b", "ab"};
  const auto trie = std::make_shared<TokenTrie>(
      tokens.size(), [](TokenId) { return TokenTrie::Kind::Text; },
      [&](TokenId id) -> std::string_view { return tokens[static_cast<std::size_t>(id)]; });
  masks_for("root ::= [ab]+", trie);
  expect_error(Errc::Unsupported, {"byte 0x63"}, [&] { masks_for("root ::= [a-c]+", trie); });
}

TEST(TokenMasks, EachStateIsComputedOnce) {
  const auto trie = test::demo_trie();
  TokenMasks masks = masks_for("root ::= [a-z]*", trie);
  TokenMasks::Cursor cursor = masks.start();
  std::vector<std::uint8_t> allowed(masks.n_ids());
  for (int i = 0; i < 5; ++i) {
    masks.fill(cursor, allowed);
    ASSERT_TRUE(masks.advance_bytes(cursor, "abc"));
  }
  EXPECT_LE(masks.counts().masks_computed, 2u);
  EXPECT_GE(masks.counts().masks_reused, 3u);
}

// Bytes that no UTF-8 has, ids without a token: never allowed, never a crash.
TEST(TokenMasks, WhatIsNoText) {
  const Tokenizer tokenizer = test::load_json(test::tiny_json());
  const auto trie = test::trie_of(tokenizer);
  TokenMasks masks = masks_for("root ::= .*", trie);
  TokenMasks::Cursor cursor = masks.start();
  std::vector<std::uint8_t> allowed(masks.n_ids());
  masks.fill(cursor, allowed);
  for (const std::size_t byte : {0x80u, 0xC0u, 0xC1u, 0xF5u, 0xF8u, 0xFFu})
    EXPECT_EQ(allowed[byte], 0);
  for (const std::size_t byte : {0x00u, 0x41u, 0xC2u, 0xE0u, 0xF4u}) EXPECT_EQ(allowed[byte], 1);
  for (const TokenId id : {0xFF, -1, 100'000}) EXPECT_FALSE(masks.advance(cursor, id));
}

}  // namespace
}  // namespace moeflux
