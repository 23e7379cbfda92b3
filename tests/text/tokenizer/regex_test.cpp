#include "text/tokenizer/regex.h"

#include <chrono>

#include <gtest/gtest.h>

#include "base/error.h"

namespace moeflux {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text,
                                 Regex::Kind kind = Regex::Kind::Pattern) {
  const Regex regex(pattern, kind, "test");
  RegexScratch scratch(text.size());
  std::vector<ByteRange> ranges;
  regex.find_all(text, scratch, ranges);
  std::vector<std::string> out;
  for (const ByteRange& r : ranges) out.emplace_back(text.substr(r.begin, r.end - r.begin));
  return out;
}

std::string error_of(std::string_view pattern, std::string_view text = "") {
  try {
    matches(pattern, text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

using Strings = std::vector<std::string>;

TEST(Regex, FindsFromLeftToRight) {
  EXPECT_EQ(matches("a+", "aa b a"), (Strings{"aa", "a"}));
  EXPECT_EQ(matches("b|ab", "ab"), (Strings{"ab"}));
  EXPECT_EQ(matches("a|ab", "ab"), (Strings{"a"}));  // the first alternative, not the longest
  EXPECT_EQ(matches("x", ""), (Strings{}));
}

TEST(Regex, ReportsEmptyMatchesThatTouchNoOther) {
  EXPECT_EQ(matches("a*", "aab"), (Strings{"aa", ""}));
  EXPECT_EQ(matches("", "\u00E9b"), (Strings{"", "", ""}));
}

TEST(Regex, LiteralsHaveNoSyntax) {
  EXPECT_EQ(matches("a.b", "a.b axb", Regex::Kind::Literal), (Strings{"a.b"}));
  EXPECT_EQ(matches("(", "((", Regex::Kind::Literal), (Strings{"(", "("}));
}

TEST(Regex, LooksAheadAndIgnoresCase) {
  EXPECT_EQ(matches(R"(\s+(?!\S)|\s+)", "a   b"), (Strings{"  ", " "}));
  EXPECT_EQ(matches("(?i:'ll|'s)", "I'LL it's"), (Strings{"'LL", "'s"}));
}

TEST(Regex, BadPatternsAreErrorsThatNameTheOrigin) {
  EXPECT_NE(error_of("(a").find("test: bad regular expression (a: missing closing parenthesis"),
            std::string::npos);
  EXPECT_NE(error_of("[a").find("ends too early"), std::string::npos);
  EXPECT_NE(error_of("a\\").find("ends too early"), std::string::npos);
  EXPECT_NE(error_of("\\p{Klingonese}").find("test: bad regular expression"), std::string::npos);
  EXPECT_NE(error_of("\xFF").find("not UTF-8"), std::string::npos);
  EXPECT_NE(error_of(std::string(20'000, 'a')).find("20000 bytes"), std::string::npos);
  EXPECT_NE(error_of(std::string(2000, '(') + std::string(2000, ')')).find("nested"),
            std::string::npos);
  EXPECT_NE(error_of(std::string(100, '[') + std::string(100, ']')).find("too deeply"),
            std::string::npos);
  EXPECT_NE(error_of("(((((a{1,999}){1,999}){1,999}){1,999}){1,999})").find("test: bad"),
            std::string::npos);
}

TEST(Regex, ExponentialMatchingIsAnError) {
  const auto start = std::chrono::steady_clock::now();
  const std::string text(40, 'a');
  EXPECT_NE(error_of("(a+)+[bd]", text + "c").find("match limit"), std::string::npos);
  EXPECT_NE(error_of("(a|aa)*[bd]", text + "c").find("match limit"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

// Each place costs the whole text, and no place matches: there is one search, and it must still end
// in time.
TEST(Regex, QuadraticMatchingIsAnErrorInsteadOfAHang) {
  const std::string text(100'000, 'a');
  RegexScratch scratch(text.size(), std::chrono::milliseconds(100));
  std::vector<ByteRange> found;
  const auto start = std::chrono::steady_clock::now();
  try {
    Regex("(?:(?=a*z)|b)", Regex::Kind::Pattern, "test").find_all(text, scratch, found);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::LimitExceeded);
    EXPECT_EQ(std::string(error.what()),
              "test: the regular expression takes too long on this text");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(100));
}

TEST(Regex, LongRepetitionsOfGroupsMatch) {
  const std::string text(200'000, 'a');
  EXPECT_EQ(matches("(?:a|b)+", text), (Strings{text}));
  EXPECT_EQ(matches("(?:(?=[a-z])[^x])+", text), (Strings{text}));
}

}  // namespace
}  // namespace moeflux
