// Random schemas, random tokens: what is sampled under the mask, by something that knows nothing
// but the mask, is always JSON that the schema accepts.
#include <memory>

#include <gtest/gtest.h>

#include "support/paths.h"
#include "text/grammar/schema_check.h"
#include "text/grammar/schema_generator.h"
#include "text/grammar/schema_validator.h"
#include "text/grammar/vocabulary_support.h"

namespace moeflux {
namespace {

using test::Random;

constexpr std::size_t kForceAfter = 150, kGiveUp = 3000;

// Uniform over the allowed tokens, as a model at a very high temperature; after kForceAfter tokens
// whatever closes strings, lists and objects, so that recursion ends.
std::string sample(TokenMasks& masks, const TokenTrie& trie, Random& random) {
  TokenMasks::Cursor cursor = masks.start();
  std::vector<std::uint8_t> allowed(masks.n_ids());
  std::string text;
  for (std::size_t n = 0; n < kGiveUp; ++n) {
    if (cursor.must_end()) return text;
    if (cursor.may_end() && random.chance(0.3)) return text;
    masks.fill(cursor, allowed);
    const TokenId token = n < kForceAfter ? test::any_allowed(allowed, random)
                                          : test::closing_allowed(allowed, trie, random);
    if (token < 0) {
      ADD_FAILURE() << "a dead end after: " << text;
      return text;
    }
    text += trie.bytes(token);
    if (!masks.advance(cursor, token)) ADD_FAILURE() << "the mask allowed what the grammar refuses";
  }
  ADD_FAILURE() << "no end: " << text.substr(0, 1000);
  return text;
}

TEST(RandomSchemas, EverySampleIsValid) {
  const auto trie = test::demo_trie();
  int n_documents = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const Json schema = test::random_schema(random);
    std::shared_ptr<ByteAutomaton> automaton;
    std::set<std::string> notes;
    try {
      const Grammar grammar = json_schema_grammar(schema);
      notes = grammar.notes();
      automaton = std::make_shared<ByteAutomaton>(compile_grammar(grammar));
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << "\n" << schema.dump();
      continue;
    }
    TokenMasks masks(automaton, trie);
    for (int round = 0; round < 3; ++round, ++n_documents) {
      const std::string text = sample(masks, *trie, random);
      const Json value = Json::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << schema.dump() << "\n" << text;
      ASSERT_EQ(test::find_violation(schema, value), "") << schema.dump() << "\n" << text;
      const auto violation = find_schema_violation(schema, value);
      if (notes.empty()) {
        ASSERT_EQ(violation, std::nullopt) << schema.dump() << "\n" << text;
      }
    }
  }
  EXPECT_EQ(n_documents, 600);
}

TEST(RandomSchemas, JsonModeAndAnythingAtAll) {
  const auto trie = test::demo_trie();
  TokenMasks objects(std::make_shared<ByteAutomaton>(compile_grammar(json_object_grammar())), trie);
  Random random(3);
  for (int i = 0; i < 30; ++i) {
    const Json value = Json::parse(sample(objects, *trie, random), nullptr, false);
    ASSERT_TRUE(value.is_object());
  }
}

// The same seed gives the same document, whatever was asked of the masks before.
TEST(RandomSchemas, MemoryOfTheMasksChangesNothing) {
  const auto trie = test::demo_trie();
  std::uint64_t n_cleared = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random schema_random(seed);
    const auto automaton = std::make_shared<ByteAutomaton>(
        compile_grammar(json_schema_grammar(test::random_schema(schema_random))));
    TokenMasks used(automaton, trie),
        small(automaton, trie, {.automaton_bytes = 1000, .n_masks = 1});
    Random other(99), first(seed), second(seed), third(seed);
    sample(used, *trie, other);
    const std::string text = sample(used, *trie, first);
    EXPECT_EQ(text, sample(small, *trie, second));
    TokenMasks fresh(automaton, trie);
    EXPECT_EQ(text, sample(fresh, *trie, third));
    n_cleared += small.counts().times_cleared;
  }
  EXPECT_GT(n_cleared, 100u);
}

}  // namespace
}  // namespace moeflux
