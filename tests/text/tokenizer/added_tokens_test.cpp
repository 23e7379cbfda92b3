#include "text/tokenizer/added_tokens.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace moeflux {
namespace {

AddedToken token(std::string content, TokenId id) {
  AddedToken out;
  out.content = std::move(content);
  out.id = id;
  return out;
}

// "text|<id>text|": what was found, in order.
std::string cut(const AddedTokenMatcher& matcher, std::string_view text,
                std::vector<ByteRange> searched) {
  std::string out;
  for (const TokenOrText& part : matcher.split(text, searched)) {
    if (part.id >= 0) out += fmt::format("<{}>", part.id);
    out += fmt::format("{}|", text.substr(part.range.begin, part.range.end - part.range.begin));
  }
  return out;
}

std::string cut(const AddedTokenMatcher& matcher, std::string_view text) {
  return cut(matcher, text, {{0, text.size()}});
}

TEST(AddedTokens, NothingToFind) {
  EXPECT_EQ(cut(AddedTokenMatcher(), "abc"), "abc|");
  EXPECT_EQ(cut(AddedTokenMatcher({token("x", 1)}), "abc"), "abc|");
  EXPECT_EQ(cut(AddedTokenMatcher({token("x", 1)}), ""), "");
}

TEST(AddedTokens, TheLeftmostAndThenTheLongestWins) {
  const AddedTokenMatcher matcher(
      {token("ab", 1), token("abc", 2), token("bcd", 3), token("abcde", 4), token("x", 5)});
  EXPECT_EQ(cut(matcher, "abcd"), "<2>abc|d|");
  EXPECT_EQ(cut(matcher, "zabx"), "z|<1>ab|<5>x|");
  EXPECT_EQ(cut(matcher, "abcdabcde"), "<2>abc|d|<4>abcde|");
  EXPECT_EQ(cut(matcher, "abab"), "<1>ab|<1>ab|");
}

TEST(AddedTokens, OfEqualContentsTheLastCounts) {
  EXPECT_EQ(cut(AddedTokenMatcher({token("a", 1), token("a", 2)}), "a"), "<2>a|");
}

TEST(AddedTokens, SearchesOnlyWhereItMay) {
  const AddedTokenMatcher matcher({token("<e>", 1), token("<e>x", 2)});
  EXPECT_EQ(cut(matcher, "<e><e>", {{3, 6}}), "<e>|<1><e>|");
  EXPECT_EQ(cut(matcher, "<e>x", {{0, 3}}),
            "<1><e>|x|");  // the longer one would take a byte of data
  EXPECT_EQ(cut(matcher, "<e>", {{0, 2}}), "<e>|");
  EXPECT_EQ(cut(matcher, "<e>", {{0, 1}, {1, 3}}), "<e>|");  // two ranges are not one
  EXPECT_EQ(cut(matcher, "<e>", {}), "<e>|");
}

TEST(AddedTokens, StripsWhiteSpaceOnItsSides) {
  AddedToken left = token("<l>", 1), right = token("<r>", 2), both = token("<b>", 3);
  left.lstrip = right.rstrip = both.lstrip = both.rstrip = true;
  const AddedTokenMatcher matcher({left, right, both});
  EXPECT_EQ(cut(matcher, "a \u00A0<l> b"), "a|<1> \u00A0<l>| b|");
  EXPECT_EQ(cut(matcher, "a <r> \n b"), "a |<2><r> \n |b|");
  EXPECT_EQ(cut(matcher, "a <b> <b> b"), "a|<3> <b> |<3><b> |b|");
  EXPECT_EQ(cut(matcher, "<l>"), "<1><l>|");
}

TEST(AddedTokens, SingleWordsStandAlone) {
  AddedToken word = token("foo", 1);
  word.single_word = true;
  const AddedTokenMatcher matcher({word});
  EXPECT_EQ(cut(matcher, "foo"), "<1>foo|");
  EXPECT_EQ(cut(matcher, "a foo."), "a |<1>foo|.|");
  EXPECT_EQ(cut(matcher, "foo2 _foo food \u00E9foo foo\u0301"),
            "foo2 _foo food \u00E9foo foo\u0301|");
  EXPECT_EQ(cut(matcher, "foofoo foo"), "foofoo |<1>foo|");
  EXPECT_EQ(cut(matcher, "xfoo", {{1, 4}}),
            "xfoo|");  // the border of a range is no border of a word
}

}  // namespace
}  // namespace moeflux
