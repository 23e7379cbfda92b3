#include "text/grammar/grammar_cache.h"

#include <thread>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "text/grammar/vocabulary_support.h"

namespace moeflux {
namespace {

TEST(GrammarCache, TheSameGrammarIsCompiledOnce) {
  GrammarCache cache(test::demo_trie(), {.max_grammars = 3});
  const Json schema = {{"type", "integer"}};
  const auto first = cache.json_schema(schema);
  EXPECT_EQ(cache.json_schema(schema), first);
  EXPECT_NE(cache.json_schema(schema, {.leading_newlines = true}), first);
  EXPECT_NE(cache.json_object(), first);
  EXPECT_EQ(cache.json_schema(schema), first);
  const auto gbnf = cache.gbnf("root ::= x", {{"x", schema}});
  EXPECT_EQ(cache.gbnf("root ::= x", {{"x", schema}}), gbnf);
  EXPECT_NE(cache.gbnf("root ::= x", {{"x", {{"type", "null"}}}}), gbnf);
}

TEST(GrammarCache, TheLeastUsedGoesFirst) {
  GrammarCache cache(test::demo_trie(), {.max_grammars = 2});
  const auto a = cache.gbnf("root ::= \"a\""), b = cache.gbnf("root ::= \"b\"");
  EXPECT_EQ(cache.gbnf("root ::= \"a\""), a);
  cache.gbnf("root ::= \"c\"");
  EXPECT_EQ(cache.gbnf("root ::= \"a\""), a);
  EXPECT_NE(cache.gbnf("root ::= \"b\""), b);
}

// What they have learned counts, too: a grammar that has grown drives others out.
TEST(GrammarCache, BytesAreBounded) {
  const auto trie = test::demo_trie();
  GrammarCache measure(trie);
  const std::size_t fresh = measure.gbnf("root ::= \"a\"")->bytes();
  ASSERT_GT(fresh, 0u);
  GrammarCache cache(trie, {.max_bytes = 4 * fresh});
  const auto a = cache.gbnf("root ::= \"a\""), b = cache.gbnf("root ::= \"b\"");
  EXPECT_EQ(cache.gbnf("root ::= \"a\""), a);
  EXPECT_EQ(cache.gbnf("root ::= \"b\""), b);
  TokenMasks::Cursor cursor = b->start();
  std::vector<std::uint8_t> allowed(b->n_ids());
  for (int i = 0; i < 4; ++i) {  // states and masks that nobody has asked for before
    b->fill(cursor, allowed);
    if (i == 0) {
      ASSERT_TRUE(b->advance_bytes(cursor, "b"));
    }
  }
  const std::size_t grown = b->bytes();
  EXPECT_GT(grown, fresh);
  GrammarCache small(trie, {.max_bytes = grown + fresh / 2});
  const auto first = small.gbnf("root ::= \"a\""), second = small.gbnf("root ::= \"b\"");
  cursor = second->start();
  second->fill(cursor, allowed);
  ASSERT_TRUE(second->advance_bytes(cursor, "b"));
  second->fill(cursor, allowed);
  EXPECT_EQ(small.gbnf("root ::= \"b\""), second);
  EXPECT_NE(small.gbnf("root ::= \"a\""), first);

  GrammarCache none(trie, {.max_bytes = 1});  // what is in use is kept in any case
  const auto only = none.gbnf("root ::= \"a\"");
  EXPECT_EQ(none.gbnf("root ::= \"a\""), only);
}

// An answer that waits may hold a grammar that is kept no more: not what was learned about it.
TEST(GrammarCache, WhatIsGivenUpForgets) {
  const auto trie = test::demo_trie();
  GrammarCache cache(trie, {.max_grammars = 1});
  const auto held = cache.json_object();
  const std::size_t fresh = held->bytes();
  TokenMasks::Cursor cursor = held->start();
  std::vector<std::uint8_t> before(held->n_ids()), after(held->n_ids());
  ASSERT_TRUE(held->advance_bytes(cursor, "{\"a\":"));
  held->fill(cursor, before);
  EXPECT_GT(held->bytes(), fresh);
  cache.gbnf("root ::= \"b\"");
  EXPECT_LE(held->bytes(), fresh);
  held->fill(cursor, after);  // its place is found again
  EXPECT_EQ(after, before);
}

TEST(GrammarCache, LargeGrammarsAreRefusedByTheirStates) {
  GrammarCache cache(test::demo_trie(), {.max_states = 1000});
  cache.gbnf("root ::= [a-z]{400}");
  test::expect_error(Errc::LimitExceeded, {"more than 1000 states"},
                     [&] { cache.gbnf("root ::= [a-z]{2000}"); });
}

TEST(GrammarCache, ErrorsAreNotKept) {
  GrammarCache cache(test::demo_trie());
  for (int i = 0; i < 2; ++i) {
    test::expect_error(Errc::BadInput, {"no rule named"}, [&] { cache.gbnf("x ::= \"a\""); });
  }
}

// Answers of several threads share one grammar, and forget it together, without disturbing each
// other.
TEST(GrammarCache, ThreadsShareAGrammar) {
  const auto trie = test::demo_trie();
  GrammarCache cache(trie,
                     {.max_grammars = 4, .of_each = {.automaton_bytes = 30'000, .n_masks = 4}});
  const auto run = [&](std::uint64_t seed) {
    const auto masks = cache.json_object();
    test::Random random(seed);
    TokenMasks::Cursor cursor = masks->start();
    std::vector<std::uint8_t> allowed(masks->n_ids());
    std::string text;
    for (int i = 0; i < 2000 && !cursor.must_end(); ++i) {
      masks->fill(cursor, allowed);
      const TokenId token = i < 40 ? test::any_allowed(allowed, random)
                                   : test::closing_allowed(allowed, *trie, random);
      text += trie->bytes(token);
      EXPECT_TRUE(masks->advance(cursor, token));
    }
    return text;
  };
  std::vector<std::string> alone, together(4);
  for (std::uint64_t seed = 0; seed < 4; ++seed) alone.push_back(run(seed));
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < 4; ++i) threads.emplace_back([&, i] { together[i] = run(i); });
  threads.clear();
  EXPECT_EQ(alone, together);
  for (const std::string& text : alone) EXPECT_TRUE(Json::parse(text, nullptr, false).is_object());
}

}  // namespace
}  // namespace moeflux
