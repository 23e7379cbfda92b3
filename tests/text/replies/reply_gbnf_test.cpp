#include "text/replies/reply_gbnf.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "text/grammar/grammar_support.h"

namespace moeflux {
namespace {

test::GrammarRun run(const std::string& gbnf, const GbnfSchemas& schemas = {}) {
  return test::GrammarRun(parse_gbnf(gbnf, schemas));
}

TEST(ReplyGbnf, LiteralsSayWhatTheyAre) {
  const std::string text = "a \"b\" \\ \n\r\t\x01 \xC3\xA9 <|x|>";
  EXPECT_TRUE(run("root ::= " + gbnf_literal(text)).accepts(text));
  EXPECT_TRUE(run("root ::= " + gbnf_literal("") + " \"x\"").accepts("x"));
}

TEST(ReplyGbnf, TextsWithoutAnEnd) {
  test::GrammarRun texts = run("root ::= t-0\n" + gbnf_rules_without("t", "aab"));
  for (const char* text : {"", "a", "aa", "aaaa", "ab", "b", "aacaa", "\xC3\xA9"})
    EXPECT_TRUE(texts.accepts(text)) << text;
  EXPECT_FALSE(texts.begins("aab"));
  EXPECT_FALSE(texts.begins("xaaab"));
}

TEST(ReplyGbnf, PartsInAnyOrder) {
  std::string rules;
  const std::string root = gbnf_any_order("p", {"\"a\"", "\"b\""}, {"\"c\""}, rules);
  test::GrammarRun parts = run(fmt::format("root ::= {}\n{}", root, rules));
  for (const char* text : {"ab", "ba", "cab", "bca", "abc"})
    EXPECT_TRUE(parts.accepts(text)) << text;
  for (const char* text : {"", "a", "ac", "cb"}) EXPECT_FALSE(parts.accepts(text)) << text;
  EXPECT_FALSE(parts.begins("aa"));
}

TEST(ReplyGbnf, ArgumentsAreObjects) {
  std::map<std::string, Json> schemas;
  EXPECT_EQ(gbnf_arguments("r", Json{{"name", "f"}}, "none", true, schemas), "none");
  EXPECT_TRUE(schemas.empty());
  const Json typed = {{"name", "f"}, {"parameters", {{"properties", {{"a", {{"type", "null"}}}}}}}};
  EXPECT_EQ(gbnf_arguments("r", typed, "none", true, schemas), "r");
  EXPECT_EQ(schemas.at("r")["type"], "object");
  EXPECT_TRUE(schemas.at("r").contains("properties"));
  gbnf_arguments("any", typed, "none", false, schemas);
  EXPECT_EQ(schemas.at("any"), (Json{{"type", "object"}}));
  gbnf_arguments("text", Json{{"parameters", {{"type", "string"}}}}, "none", true, schemas);
  EXPECT_EQ(schemas.at("text"), (Json{{"type", "object"}}));
}

}  // namespace
}  // namespace moeflux
