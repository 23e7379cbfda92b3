// Patterns and formats of strings.
#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "text/grammar/grammar_support.h"
#include "text/grammar/pattern_language.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::GrammarRun;

struct Case {
  std::string pattern;
  std::vector<std::string> yes, no;  // texts, before they become JSON strings
};

void check(const std::string& keyword, const std::vector<Case>& cases) {
  for (const Case& test : cases) {
    GrammarRun run(Json{{"type", "string"}, {keyword, test.pattern}});
    for (const std::string& text : test.yes) {
      EXPECT_TRUE(run.accepts(Json(text).dump())) << test.pattern << " accepts " << text;
    }
    for (const std::string& text : test.no) {
      EXPECT_FALSE(run.accepts(Json(text).dump())) << test.pattern << " refuses " << text;
    }
  }
}

TEST(Pattern, WhatItMatches) {
  check("pattern", {
                       {"^abc$", {"abc"}, {"abcd", "xabc", ""}},
                       {"b", {"b", "abc", "\nb\""}, {"", "ac"}},
                       {"^a", {"a", "abc"}, {"ba"}},
                       {"a$", {"a", "ba"}, {"ab"}},
                       {"^(a|bc)+$", {"a", "bca", "aabc"}, {"", "b", "ac"}},
                       {"^a|b$", {"axx", "xxb"}, {"xax"}},
                       {R"(^\d{3}-\w+$)", {"123-a_B9"}, {"12-a", "123-"}},
                       {R"(^[^"\\]$)", {"a", "\n", "\u00e4"}, {"\"", "\\", "ab"}},
                       {R"(^["\\/\n\u00e4]+$)", {"\"\\/\n\u00e4"}, {"a"}},
                       {R"(^\D\S\W$)", {"ab-"}, {"1b-", "a -", "abc"}},
                       {"^.$", {"a", "\u4e2d", "\""}, {"\n", ""}},
                       {"^[a-c-]+?$", {"a-c"}, {"d"}},
                       {R"(^(?:x(?<name>y)?){2,3}$)", {"xx", "xyxxy"}, {"x", "xxxx"}},
                       {R"(^\x41\u0042\u{1F600}\.$)", {"AB\U0001F600."}, {"AB\U0001F600x"}},
                       {"", {"", "anything"}, {}},
                   });
}

TEST(Pattern, LengthsTogetherWithAPattern) {
  GrammarRun run(
      Json{{"type", "string"}, {"pattern", "^[a-z]+$"}, {"minLength", 2}, {"maxLength", 4}});
  EXPECT_FALSE(run.accepts("\"a\""));
  EXPECT_TRUE(run.accepts("\"abcd\""));
  EXPECT_FALSE(run.accepts("\"abcde\""));
  GrammarRun inside(Json{{"type", "string"}, {"pattern", "^a{3}b?$"}, {"maxLength", 4}});
  EXPECT_TRUE(inside.accepts("\"aaab\""));
  GrammarRun both(Json{{"type", "string"}, {"pattern", "^a+b*$"}, {"maxLength", 4}});
  EXPECT_TRUE(both.accepts("\"aabb\""));
  EXPECT_FALSE(both.begins("\"aabbb"));
}

TEST(Pattern, Errors) {
  const auto refuse = [](Errc code, const std::string& pattern, std::string_view part) {
    expect_error(code, {"pattern", part}, [&] {
      TextLanguages languages;
      pattern_language(languages, pattern);
    });
    // In a schema it is left to the check.
    const Grammar grammar =
        json_schema_grammar({{"properties", {{"p", {{"type", "string"}, {"pattern", pattern}}}}}});
    EXPECT_EQ(grammar.notes(), std::set<std::string>{"/properties/p/pattern"});
  };
  refuse(Errc::Unsupported, R"((a)\1)", "back reference");
  refuse(Errc::Unsupported, "(?<=a)b", "look-behind");
  refuse(Errc::Unsupported, R"(\p{Script=Greek})", "property");
  refuse(Errc::BadInput, "(a", "not closed");
  refuse(Errc::BadInput, "a)", "closes nothing");
  refuse(Errc::BadInput, "[a", "not closed");
  refuse(Errc::BadInput, "*a", "nothing to repeat");
  refuse(Errc::BadInput, "[z-a]", "wrong order");
  refuse(Errc::BadInput, "a{2,1}", "wrong order");
  refuse(Errc::BadInput, std::string(100, '('), "too deep");
}

TEST(Format, WhatEachAccepts) {
  check(
      "format",
      {
          {"date",
           {"2024-02-29", "2023-12-31", "2000-02-29"},
           {"2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "24-01-01"}},
          {"time", {"23:59:59Z", "00:00:00.123+05:30"}, {"24:00:00Z", "12:60:00Z", "12:00:00"}},
          {"date-time",
           {"2024-02-29T12:00:00Z", "1999-01-01T00:00:00.5-08:00"},
           {"2024-02-30T12:00:00Z", "2024-01-01 12:00:00Z"}},
          {"duration", {"P3D", "PT5M", "P2W", "PT1H30M", "P1DT12H"}, {"P", "PT", "3D"}},
          {"uuid", {"123e4567-e89b-12d3-a456-426614174000"}, {"123e4567e89b12d3a456426614174000"}},
          {"email", {"a.b+c@example.co.uk"}, {"a@b", "a b@c.de", "@c.de", "a@.de", "a..b@c.de"}},
          {"hostname", {"example.com", "a-b.c"}, {"-a.com", "a_b", "a..b"}},
          {"ipv4", {"0.0.0.0", "255.249.199.99"}, {"256.0.0.0", "1.2.3", "01.2.3.4"}},
          {"ipv6", {"2001:db8:0:0:0:0:0:1"}, {"2001:db8", "g:0:0:0:0:0:0:1"}},
          {"iri", {"https://example.com/"}, {"example.com"}},
          {"uuid4",
           {"123e4567-e89b-42d3-a456-426614174000"},
           {"123e4567-e89b-12d3-a456-426614174000"}},
          {"base64", {"", "aGk="}, {"aGk"}},
          {"json-pointer", {"", "/a/b~0c"}, {"a", "/~"}},
          {"uri", {"https://example.com/a/b?c=d#e", "http://h:80/"}, {"example.com", "http:/x"}},
      });
}

}  // namespace
}  // namespace moeflux
