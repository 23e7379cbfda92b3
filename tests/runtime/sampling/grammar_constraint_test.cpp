// A grammar over the tokens of an answer: with the sampler, end tokens, and grammars that begin
// after a token.
#include "runtime/sampling/grammar_constraint.h"

#include <gtest/gtest.h>

#include "runtime/sampling/sampler.h"
#include "support/expect_error.h"
#include "text/grammar/vocabulary_support.h"

namespace moeflux {
namespace {

using test::expect_error;

class GrammarConstraintTest : public testing::Test {
 protected:
  GrammarConstraintTest() : tokenizer_(test::demo_tokenizer()), end_(*tokenizer_.eos()) {
    trie_ = test::trie_of(tokenizer_, {end_});
  }

  std::shared_ptr<TokenMasks> masks(const Grammar& grammar) {
    return std::make_shared<TokenMasks>(
        std::make_shared<ByteAutomaton>(compile_grammar(grammar, trie_->markers())), trie_);
  }
  TokenId token(std::string_view text) const { return tokenizer_.find_token(text).value(); }

  // What the sampler makes of random logits at a temperature under the constraint.
  std::string generate(TokenConstraint& constraint, std::uint64_t seed, double temperature,
                       std::size_t max_tokens) {
    test::Random random(seed);
    Sampler sampler;
    std::vector<TokenId> ids;
    SamplingParams params;
    params.temperature = temperature;
    params.seed = seed;
    while (ids.size() < max_tokens && !constraint.must_end()) {
      std::vector<float> logits = random.floats(static_cast<std::int64_t>(tokenizer_.n_ids()), 4.0);
      // Rows of the head that no tokenizer knows would win without the mask.
      logits.resize(logits.size() + 64, 100.0f);
      // A liking for what ends strings and lists, else random text would not end.
      for (const std::string_view close : {"\"", "]", "}"}) logits[id_of(close)] += 8.0f;
      const TokenId id = sampler.sample({.logits = logits,
                                         .n_valid = tokenizer_.n_ids(),
                                         .allowed = constraint.allowed(),
                                         .history = ids,
                                         .step = ids.size()},
                                        params);
      constraint.accept(id);
      if (id == end_) break;
      ids.push_back(id);
    }
    return tokenizer_.decode(ids);
  }
  std::size_t id_of(std::string_view text) const { return static_cast<std::size_t>(token(text)); }

  Tokenizer tokenizer_;
  TokenId end_;
  std::shared_ptr<const TokenTrie> trie_;
};

TEST_F(GrammarConstraintTest, SampledDocumentsFollowTheSchema) {
  const Json schema = parse_json(
      R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
          "age": {"type": "integer", "minimum": 0, "maximum": 150},
          "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 4}},
          "required": ["name", "age", "tags"], "additionalProperties": false})",
      "test");
  const auto shared = masks(json_schema_grammar(schema));
  for (const double temperature : {0.0, 1.0, 1.5, 5.0}) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      GrammarConstraint constraint(shared, {.end_tokens = {end_}});
      const std::string text = generate(constraint, seed, temperature, 400);
      const Json value = parse_json(text, "answer");
      EXPECT_EQ(value.size(), 3u);
      EXPECT_TRUE(value["name"].is_string());
      EXPECT_LE(value["age"].get<int>(), 150);
      EXPECT_LE(value["tags"].size(), 4u);
      EXPECT_TRUE(constraint.must_end());
      GrammarConstraint again(shared, {.end_tokens = {end_}});
      EXPECT_EQ(generate(again, seed, temperature, 400), text);
    }
  }
}

TEST_F(GrammarConstraintTest, EndTokensExactlyWhereTheGrammarMayEnd) {
  GrammarConstraint constraint(masks(parse_gbnf("root ::= \"a\" \"b\"?")), {.end_tokens = {end_}});
  const auto end_allowed = [&] {
    return constraint.allowed()[static_cast<std::size_t>(end_)] != 0;
  };
  EXPECT_FALSE(constraint.may_end());
  EXPECT_FALSE(end_allowed());
  expect_error(Errc::BadInput, {"cannot come here"}, [&] { constraint.accept(end_); });
  expect_error(Errc::BadInput, {"cannot come here"}, [&] { constraint.accept(token("b")); });
  constraint.accept(token("a"));
  EXPECT_TRUE(constraint.may_end());
  EXPECT_FALSE(constraint.must_end());
  EXPECT_TRUE(end_allowed());
  constraint.accept(token("b"));
  EXPECT_TRUE(constraint.must_end());
  const auto allowed = constraint.allowed();
  EXPECT_EQ(std::count(allowed.begin(), allowed.end(), 1), 1);
  EXPECT_TRUE(end_allowed());
  constraint.accept(end_);
  EXPECT_TRUE(constraint.must_end());
  expect_error(Errc::BadInput, {"cannot come here"}, [&] { constraint.accept(token("a")); });
}

TEST_F(GrammarConstraintTest, BeginsAfterAToken) {
  const TokenId think_end = token("</think>");
  GrammarConstraint constraint(masks(json_object_grammar({.leading_newlines = true})),
                               {.end_tokens = {end_}, .starts_after = {think_end}});
  EXPECT_TRUE(constraint.allowed().empty());
  EXPECT_TRUE(constraint.may_end());
  EXPECT_FALSE(constraint.must_end());
  constraint.accept(token("a"));
  EXPECT_TRUE(constraint.allowed().empty());
  constraint.accept(think_end);
  ASSERT_FALSE(constraint.allowed().empty());
  EXPECT_FALSE(constraint.may_end());
  EXPECT_EQ(constraint.allowed()[id_of("a")], 0);
  EXPECT_EQ(constraint.allowed()[id_of("\n")], 1);
  EXPECT_EQ(constraint.allowed()[id_of("{")], 1);
  constraint.accept(token("{"));
  constraint.accept(token("}"));
  EXPECT_TRUE(constraint.must_end());
}

// Tool calls inside of free text, each well-formed.
TEST_F(GrammarConstraintTest, RepeatsForEveryCall) {
  const TokenId call = token("<tool_call>"), call_end = token("</tool_call>");
  const Grammar grammar = parse_gbnf(
      R"(root ::= "\n{\"name\": \"add\", \"arguments\": " arguments "}\n</tool_call>")",
      {{"arguments",
        parse_json(R"({"properties": {"a": {"type": "integer"}}, "required": ["a"]})", "test")}});
  GrammarConstraint constraint(masks(grammar),
                               {.end_tokens = {end_}, .starts_after = {call}, .repeats = true});
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(constraint.allowed().empty());
    constraint.accept(token("a"));
    constraint.accept(call);
    for (const TokenId id :
         tokenizer_.encode_data("\n{\"name\": \"add\", \"arguments\": {\"a\": 12}}\n")) {
      ASSERT_EQ(constraint.allowed()[static_cast<std::size_t>(id)], 1);
      constraint.accept(id);
    }
    EXPECT_EQ(constraint.allowed()[static_cast<std::size_t>(call_end)], 1);
    EXPECT_EQ(constraint.allowed()[static_cast<std::size_t>(call)], 0);
    EXPECT_FALSE(constraint.may_end());
    constraint.accept(call_end);
    EXPECT_TRUE(constraint.may_end());
    EXPECT_FALSE(constraint.must_end());
  }
}

TEST_F(GrammarConstraintTest, RefusesAnEndTokenOutsideOfTheVocabulary) {
  const auto shared = masks(parse_gbnf("root ::= \"a\""));
  expect_error(Errc::BadInput, {"99999999"},
               [&] { GrammarConstraint(shared, {.end_tokens = {99'999'999}}); });
}

// A token may have said the first letters of the grammar's text already.
TEST_F(GrammarConstraintTest, ATextThatHasBegun) {
  GrammarConstraint constraint(masks(parse_gbnf("root ::= \"\\n\"? (\"yes\" | \"no\")")),
                               {.end_tokens = {end_}});
  EXPECT_FALSE(constraint.begin_with("maybe"));
  EXPECT_TRUE(constraint.begin_with(""));
  EXPECT_TRUE(constraint.begin_with("\ny"));
  EXPECT_EQ(constraint.allowed()[id_of("n")], 0);
  EXPECT_EQ(constraint.allowed()[id_of("e")], 1);
  EXPECT_FALSE(constraint.may_end());
  constraint.accept(token("e"));
  constraint.accept(token("s"));
  EXPECT_TRUE(constraint.must_end());
}

}  // namespace
}  // namespace moeflux
