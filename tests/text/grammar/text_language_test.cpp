// Languages over characters: what combinations of patterns contain, and that their work is bounded.
#include "text/grammar/text_language.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "text/grammar/pattern_language.h"

namespace moeflux {
namespace {

TEST(TextLanguage, Combinations) {
  TextLanguages l;
  const LanguageId a = pattern_language(l, "^a*$"), has_b = pattern_language(l, "b");
  EXPECT_TRUE(l.contains(a, "aaa"));
  EXPECT_FALSE(l.contains(a, "aba"));
  EXPECT_TRUE(l.contains(has_b, "aba"));
  EXPECT_FALSE(l.contains(l.both({a, has_b}), "aba"));
  EXPECT_TRUE(l.contains(l.either({a, has_b}), "aba"));
  EXPECT_TRUE(l.contains(l.complement(a), "aba"));
  EXPECT_FALSE(l.contains(l.complement(a), ""));
  EXPECT_EQ(l.both({a, l.complement(a)}), l.both({l.complement(a), a}));
  EXPECT_EQ(l.automaton(l.both({a, has_b}), 100).size(), 0u);
  EXPECT_TRUE(l.contains(l.text("\u00e4\U0001F600"), "\u00e4\U0001F600"));
  EXPECT_FALSE(l.contains(l.text("\u00e4"), "a"));
}

TEST(TextLanguage, AnAutomatonIsSmallest) {
  TextLanguages l;
  // Even numbers in decimal: two states.
  const TextDfa even = l.automaton(pattern_language(l, "^\\d*[02468]$"), 100);
  ASSERT_EQ(even.size(), 2u);
  EXPECT_EQ(even.accepts[0], 0);
  EXPECT_EQ(l.automaton(pattern_language(l, "^(?:ab|cb|ab)$"), 100).size(), 3u);
  EXPECT_EQ(l.automaton(l.anything(), 100).size(), 1u);
}

TEST(TextLanguage, LooksAround) {
  struct LookCase {
    const char* pattern;
    std::vector<std::string> yes, no;
  };
  for (const LookCase& test : std::vector<LookCase>{
           {"^(?=a)", {"a", "ab"}, {"", "ba"}},
           {"(?=ab)a", {"ab", "xab"}, {"a", "b"}},
           {"a(?!b)", {"a", "ac", "aba"}, {"ab", "bab"}},
           {"^(?:a(?=b)|b)+$", {"b", "ab", "abb"}, {"a", "aa", "ba"}},
           {"a$|^b", {"ca", "bc"}, {"ac", "cb"}},
           {"(^a|b)c", {"ac", "xbc"}, {"xac"}},
           {"\\Ba", {"ba"}, {"a", " a"}},
           {"^(?!.*(.)x).*$", {"x", "aa"}, {"ax"}},
           {"\\cJ", {"a\nb"}, {"ab"}},
           {"^[^]$", {"\n", "a"}, {""}},
           {"\\uD83D\\uDE00", {"\U0001F600"}, {"\U0001F601"}},
           {"a{,2}", {"a{,2}"}, {"aa"}},
       }) {
    TextLanguages l;
    try {
      const LanguageId id = pattern_language(l, test.pattern);
      for (const auto& text : test.yes) EXPECT_TRUE(l.contains(id, text)) << test.pattern << text;
      for (const auto& text : test.no) EXPECT_FALSE(l.contains(id, text)) << test.pattern << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::Unsupported) << test.pattern << ": " << error.what();
      EXPECT_STREQ(test.pattern, "^(?:a(?=b)|b)+$");  // the only one
    }
  }
}

TEST(TextLanguage, WorkIsBounded) {
  TextLanguages l;
  const LanguageId wide = pattern_language(l, "(a|b)*a(a|b){40}c");
  test::expect_error(Errc::LimitExceeded, {"states"}, [&] { l.automaton(wide, 2000); });
  // What makes backtracking take for ever.
  TextLanguages nested;
  const LanguageId slow = pattern_language(nested, "^(([a-z])+.)+[A-Z]([a-z])+$");
  EXPECT_FALSE(nested.contains(slow, std::string(20'000, 'a')));
  TextLanguages deep;
  std::string pattern;
  for (int i = 0; i < 3000; ++i) pattern += "a?";
  test::expect_error(Errc::LimitExceeded, {"steps"},
                     [&] { deep.contains(pattern_language(deep, "^" + pattern + "$"), "aaa"); });
}

}  // namespace
}  // namespace moeflux
