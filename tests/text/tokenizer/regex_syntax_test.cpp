#include <gtest/gtest.h>

#include "base/error.h"
#include "text/tokenizer/regex.h"

namespace moeflux {
namespace {

TEST(RegexSyntax, LeavesCommonSyntaxAlone) {
  for (const std::string pattern :
       {"a|b", "(?:a)", "(?<n>a)\\k<n>", "(?<=a)b", "(?<!a)b", "a*?", "a++", "a{2,3}?", "[a-z]",
        "[^a-z]", "(a)\\1", "^a$", "\\t\\n\\r", "x{", "(?i:a)"}) {
    const std::string translated = to_pcre2_syntax(pattern, "test");
    EXPECT_EQ(translated, pattern == "x{" ? "x\\{" : pattern);
  }
}

TEST(RegexSyntax, WhiteSpaceIsSpelledOut) {
  EXPECT_EQ(to_pcre2_syntax("\\s", "test"), R"([\x{09}-\x{0d}\x{85}\p{Z}])");
  EXPECT_EQ(to_pcre2_syntax("\\S", "test"), R"([^\x{09}-\x{0d}\x{85}\p{Z}])");
  EXPECT_EQ(to_pcre2_syntax("[^\\s!]", "test"), R"([^\x{09}-\x{0d}\x{85}\p{Z}!])");
}

TEST(RegexSyntax, RepetitionsOfRepetitions) {
  EXPECT_EQ(to_pcre2_syntax("a{1,3}+", "test"), "(?:a{1,3})+");
  EXPECT_EQ(to_pcre2_syntax("(?:ab){2}+c", "test"), "(?:(?:ab){2})+c");
  EXPECT_EQ(to_pcre2_syntax("a{2}?", "test"), "(?:a{2})?");
  EXPECT_EQ(to_pcre2_syntax("a{,3}", "test"), "a{0,3}");
}

TEST(RegexSyntax, ClassesAreIntersectedWithLookaheads) {
  EXPECT_EQ(to_pcre2_syntax("[a-z&&[^b]]", "test"), "(?:(?=(?:[a-z]))(?:[^b]))");
  EXPECT_EQ(to_pcre2_syntax("[[ab][c]]", "test"), "[abc]");
  EXPECT_EQ(to_pcre2_syntax("[^a&&b]", "test"), "(?:(?!(?=(?:[a]))(?:[b]))(?s:.))");
  EXPECT_EQ(to_pcre2_syntax("[[x]^-]", "test"), "[x\\^\\-]");
}

TEST(RegexSyntax, ScriptsAreNotScriptExtensions) {
  EXPECT_EQ(to_pcre2_syntax("\\p{Greek}", "test"), "[\\p{sc:Greek}]");
  EXPECT_EQ(to_pcre2_syntax("\\P{Zs}", "test"), "[^\\p{Zs}]");
  EXPECT_EQ(to_pcre2_syntax("\\p{Space_Separator}", "test"), "[\\p{Zs}]");
}

TEST(RegexSyntax, OtherEscapes) {
  EXPECT_EQ(to_pcre2_syntax("\\u00e9\\v\\h\\012\\-", "test"),
            R"(\x{00e9}\x{0b}[0-9A-Fa-f]\x{0a}\-)");
  EXPECT_EQ(to_pcre2_syntax("(?m:.)", "test"), "(?s:.)");
  EXPECT_EQ(to_pcre2_syntax("a(?#note)b", "test"), "ab");
}

TEST(RegexSyntax, RefusesWhatHasNoEquivalent) {
  for (const char* pattern : {"(*UTF)a", "(?~a)", "(?s)a", "\\N", "\\Qa", "\\y"}) {
    try {
      to_pcre2_syntax(pattern, "tokenizer.json: pre_tokenizer");
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::Unsupported);
      EXPECT_EQ(std::string(error.what()).rfind("tokenizer.json: pre_tokenizer: ", 0), 0u)
          << error.what();
    }
  }
  for (const char* pattern : {"\\p", "\\p{", "\\pL", "\\u12", "\\x4", "[[:alpha:]", "\\p{a=b}"}) {
    EXPECT_THROW(to_pcre2_syntax(pattern, "test"), Error) << pattern;
  }
}

// Characters that came into Unicode after version 14 are cut like their kind.
TEST(RegexSyntax, KnowsLateCharacters) {
  const auto has = [](const char* pattern, std::string_view text) {
    RegexScratch scratch(text.size());
    std::vector<ByteRange> found;
    Regex(pattern, Regex::Kind::Pattern, "test").find_all(text, scratch, found);
    return !found.empty();
  };
  EXPECT_TRUE(has("\\p{S}", "\U0001FA77"));    // pink heart, 15.0
  EXPECT_TRUE(has("\\p{L}", "\U00031350"));    // an ideograph, 15.0
  EXPECT_TRUE(has("\\p{Han}", "\U0002EBF0"));  // 15.1
  EXPECT_TRUE(has("\\p{Nd}", "\U0001CCF5"));   // 16.0
  EXPECT_FALSE(has("\\P{S}", "\U0001FA77"));
  EXPECT_FALSE(has("[^\\p{S}]", "\U0001FA77"));
  EXPECT_FALSE(has("\\p{N}", "\U0001FA77"));
}

}  // namespace
}  // namespace moeflux
