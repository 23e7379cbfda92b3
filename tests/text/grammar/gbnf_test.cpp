// GBNF: what each piece of the notation accepts, and what a wrong one says.
#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "text/grammar/grammar_support.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::GrammarRun;

struct Case {
  std::string grammar;
  std::vector<std::string> yes, no;
};

void check(const std::vector<Case>& cases) {
  for (const Case& test : cases) {
    GrammarRun run(std::string_view(test.grammar));
    for (const std::string& text : test.yes) {
      EXPECT_TRUE(run.accepts(text)) << test.grammar << "\nshould accept: " << text;
      EXPECT_EQ(run.reach(text), text.size()) << text;
    }
    for (const std::string& text : test.no) {
      EXPECT_FALSE(run.accepts(text)) << test.grammar << "\nshould refuse: " << text;
    }
  }
}

TEST(Gbnf, LiteralsAndEscapes) {
  check({
      {R"(root ::= "abc")", {"abc"}, {"", "ab", "abcd", "abd"}},
      {R"(root ::= "")", {""}, {"a"}},
      {R"(root ::= "a\n\t\r\"\\\x41\u00e4\U0001F600")", {"a\n\t\r\"\\A\u00e4\U0001F600"}, {"a"}},
      {"root ::= \"\u00e4\"", {"\u00e4"}, {"\xC3", "a"}},
  });
}

TEST(Gbnf, Classes) {
  check({
      {"root ::= [abc]", {"a", "b", "c"}, {"d", "", "ab"}},
      {"root ::= [a-c0-9_-]", {"b", "5", "_", "-"}, {"d", "A"}},
      {"root ::= [^a-c\\n]", {"d", "\u00e4", "\U0001F600", "\u4e2d"}, {"a", "\n", "dd", "\xC3"}},
      {"root ::= [\u00e4-\u00f6]+", {"\u00e4", "\u00e5\u00f6"}, {"a", "\u00e3", "\u00f7"}},
      {R"(root ::= [\u0400-\u04FF\]\\\[\-\^])", {"\u0416", "]", "\\", "[", "-", "^"}, {"a"}},
      {"root ::= .", {"a", "\n", "\u00e4", "\U0010FFFF"}, {"", "ab", "\xED\xA0\x80", "\xFF"}},
      {"root ::= [^]", {"x"}, {"", "\xFF"}},
  });
}

TEST(Gbnf, ChoicesGroupsAndCounts) {
  check({
      {R"(root ::= "a" | "b" "c" | )", {"a", "bc", ""}, {"b", "ac", "abc"}},
      {R"(root ::= ("a" | "b")* "c")", {"c", "abbac"}, {"ab", "cc"}},
      {R"(root ::= "a"+ "b"? )", {"a", "aab"}, {"", "b", "abb"}},
      {R"(root ::= "a"{3})", {"aaa"}, {"aa", "aaaa"}},
      {R"(root ::= "a"{2,})", {"aa", "aaaaaa"}, {"a"}},
      {R"(root ::= "a"{,2})", {"", "a", "aa"}, {"aaa"}},
      {R"(root ::= ("ab" [0-9]){2,4})", {"ab1ab2", "ab1ab2ab3ab4"}, {"ab1", "ab1ab2ab3ab4ab5"}},
      {R"(root ::= ("a"? "b"?){3})", {"", "aaa", "abab", "bbb"}, {"aaaa", "ababbbb"}},
      {R"(root ::= "a" + ("b") ? )", {"aaab"}, {"abb"}},
      {R"(root ::= .{3,5})", {"\u00e4\u4e2d\U0001F600", "abcde"}, {"ab", "abcdef"}},
  });
}

TEST(Gbnf, RulesCommentsAndLines) {
  check({
      {"# a comment\nroot ::= item (\",\" item)* # another\n\nitem ::= [a-z]+ |\n  [0-9]+\r\n",
       {"ab", "ab,12,c"},
       {",", "ab,", "a1"}},
      {"root ::= (\n  \"a\"\n  | \"b\" # inside\n)\n", {"a", "b"}, {"ab"}},
      {"root ::=\n  \"a\" ws\nws ::= | \" \" ws", {"a", "a    "}, {" a"}},
      {"root ::= a-b_1\na-b_1 ::= \"x\"", {"x"}, {""}},
  });
}

TEST(Gbnf, RecursionThatNoRegularExpressionHas) {
  check({
      {R"g(root ::= "(" root ")" root | )g", {"", "()", "(())()", "((()))"}, {"(", "())", ")"}},
      {R"(root ::= "a" root "x" | "a" root "y" | "b")", {"b", "abx", "aaaabxyxy"}, {"abxx", "ab"}},
      {"root ::= e\ne ::= t (\"+\" t)*\nt ::= f (\"*\" f)*\nf ::= [0-9] | \"(\" e \")\"",
       {"1+2*(3+4)", "((1))"},
       {"1+", "(1", "1)"}},
      {"root ::= a b\na ::= | \"x\" a\nb ::= | b2\nb2 ::= \"y\" b", {"", "xx", "xxyyy"}, {"yx"}},
  });
}

// Every reading is kept, without a list of them all.
TEST(Gbnf, AmbiguityStaysSmall) {
  GrammarRun run(
      std::string_view("root ::= s\ns ::= \"a\" s \"x\" | \"a\" s \"y\" | \"a\" s | \"\""));
  std::string text(150, 'a');
  EXPECT_TRUE(run.accepts(text));
  for (int i = 0; i < 100; ++i) text += i % 3 == 0 ? 'x' : 'y';
  EXPECT_TRUE(run.accepts(text));
  EXPECT_FALSE(run.accepts(text + std::string(51, 'x')));
  EXPECT_LT(run.automaton().bytes(), 8u << 20);
}

// Recursion at the end of a rule is a loop; other recursion ends before the limit of depth, and
// then still finds its way out.
TEST(Gbnf, DepthIsBoundedWithoutDeadEnds) {
  GrammarRun list(std::string_view("root ::= [a-z] root | \".\""));
  EXPECT_TRUE(list.accepts(std::string(5000, 'q') + "."));
  GrammarRun nested(
      std::string_view("root ::= \"[\" root \"]\" | \"[\" two \"]]\" | \"0\"\n"
                       "two ::= \"<\" root \">\" root"));
  const std::size_t depth = nested.reach(std::string(1000, '['));
  EXPECT_EQ(depth, ByteAutomaton::kMaxDepth);
  EXPECT_TRUE(nested.accepts(std::string(depth, '[') + "0" + std::string(depth, ']')));
}

TEST(Gbnf, ErrorsNameLineAndColumn) {
  const auto refuse = [](std::string_view text, std::initializer_list<std::string_view> parts) {
    expect_error(Errc::BadInput, parts, [&] { parse_gbnf(text); });
  };
  refuse("root ::= \"a\" b", {"line 1, column 14", "\"b\" is used but not defined"});
  refuse("x ::= \"a\"", {"no rule named \"root\""});
  refuse("root ::= \"a", {"line 1, column 10", "closing quote"});
  refuse("root ::= [a-", {"line 1, column 10", "closing bracket"});
  refuse("root ::= [z-a]", {"column 11", "wrong order"});
  refuse("root ::= \"a\"\nroot ::= \"b\"", {"line 2, column 1", "defined twice"});
  refuse("root = \"a\"", {"expected ::="});
  refuse("root ::= (\"a\"", {"column 10", "not closed"});
  refuse("root ::= \"a\")", {"closes nothing"});
  refuse("root ::= \"\\q\"", {"unknown escape"});
  refuse("root ::= \"\\ud800\"", {"not a character"});
  refuse("root ::= \"a\"{3,1}", {"wrong order"});
  refuse("root ::= \"a\"{999999999}", {"at most"});
  refuse("root ::= \"\xFF\"", {"UTF-8"});
  refuse("root ::= []", {"empty class"});
  refuse("root ::= " + std::string(200, '(') + "\"a\"" + std::string(200, ')'), {"nested deeper"});
  expect_error(Errc::LimitExceeded, {"bytes"},
               [] { parse_gbnf("root ::= \"" + std::string(200'000, 'a') + "\""); });
}

TEST(Gbnf, RefusesWhatCannotRun) {
  const auto refuse = [](std::string_view text, std::string_view part) {
    expect_error(Errc::BadInput, {part}, [&] { compile_grammar(parse_gbnf(text)); });
  };
  refuse("root ::= root \"a\" | \"b\"", "left recursion");
  refuse("root ::= a\na ::= b? c\nb ::= \"x\"\nc ::= a", "left recursion");
  refuse("root ::= \"a\" root", "no text matches");
  expect_error(Errc::LimitExceeded, {"states"}, [] {
    std::string text = "root ::=";
    for (int i = 0; i < 11; ++i) text += " [a-z]{100000}";
    compile_grammar(parse_gbnf(text));
  });
}

// A branch that can never end is as if it were not there.
TEST(Gbnf, BranchesWithoutAnEndAreDropped) {
  GrammarRun run(std::string_view("root ::= \"a\" loop | \"ab\"\nloop ::= \"b\" loop"));
  EXPECT_TRUE(run.accepts("ab"));
  EXPECT_FALSE(run.begins("abb"));
}

TEST(Gbnf, SchemasAsRules) {
  const Json schema = {{"type", "object"},
                       {"properties", {{"a", {{"type", "integer"}}}, {"b", {{"type", "integer"}}}}},
                       {"required", {"a", "b"}}};
  GrammarRun run(parse_gbnf(
      R"(root ::= "<tool_call>\n{\"name\": \"add\", \"arguments\": " arguments "}\n</tool_call>")",
      {{"arguments", schema}}));
  EXPECT_TRUE(
      run.accepts("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 22}}\n"
                  "</tool_call>"));
  EXPECT_FALSE(run.begins("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\""));
  expect_error(Errc::BadInput, {"arguments: /items/not", "a schema must be"}, [] {
    parse_gbnf("root ::= arguments", {{"arguments", {{"items", {{"not", 1}}}}}});
  });
  EXPECT_EQ(parse_gbnf("root ::= arguments", {{"arguments", {{"uniqueItems", true}}}}).notes(),
            std::set<std::string>{"/uniqueItems"});
  expect_error(Errc::BadInput, {"line 2", "name of a schema"}, [] {
    parse_gbnf("root ::= x\nx ::= \"a\"", {{"x", true}});
  });
}

TEST(Gbnf, ForgettingChangesNothing) {
  GrammarRun run(std::string_view("root ::= \"(\" root \")\" root | [a-z]"));
  const std::string text = "((a)b)c";
  EXPECT_TRUE(run.accepts(text));
  run.automaton().clear();
  EXPECT_LT(run.automaton().n_states(), 3u);
  EXPECT_TRUE(run.accepts(text));
}

}  // namespace
}  // namespace moeflux
