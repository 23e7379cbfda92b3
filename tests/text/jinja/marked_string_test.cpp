#include "text/jinja/marked_string.h"

#include <gtest/gtest.h>

namespace moeflux::jinja {
namespace {

using Range = MarkedText::Range;

std::vector<Range> ranges(MarkedString text) {
  return std::move(text).take().data;
}

TEST(MarkedString, KnowsItsOrigin) {
  EXPECT_TRUE(ranges(MarkedString("abc", Origin::Markup)).empty());
  EXPECT_EQ(ranges(MarkedString("abc", Origin::Data)), (std::vector<Range>{{0, 3}}));
  EXPECT_TRUE(ranges(MarkedString("", Origin::Data)).empty());
}

TEST(MarkedString, AppendShiftsAndMerges) {
  MarkedString text("<", Origin::Markup);
  text.append("ab", Origin::Data);
  text.append(MarkedString("cd", Origin::Data));
  text.append(">", Origin::Markup);
  text.append("e", Origin::Data);
  EXPECT_EQ(text.bytes(), "<abcd>e");
  EXPECT_EQ(ranges(text), (std::vector<Range>{{1, 5}, {6, 7}}));
  EXPECT_EQ(text.origin_at(0), Origin::Markup);
  EXPECT_EQ(text.origin_at(1), Origin::Data);
  EXPECT_EQ(text.origin_at(4), Origin::Data);
  EXPECT_EQ(text.origin_at(5), Origin::Markup);
}

TEST(MarkedString, SubstrClips) {
  MarkedString text;
  for (int i = 0; i < 4; ++i) {
    text.append("mm", Origin::Markup);
    text.append("dd", Origin::Data);
  }
  EXPECT_EQ(ranges(text.substr(3, 13)), (std::vector<Range>{{0, 1}, {3, 5}, {7, 9}}));
  EXPECT_EQ(ranges(text.substr(4, 6)), (std::vector<Range>{}));
  EXPECT_EQ(ranges(text.substr(7)), (std::vector<Range>{{0, 1}, {3, 5}, {7, 9}}));
  EXPECT_EQ(text.substr(7).bytes(), "dmmddmmdd");
}

TEST(MarkedString, AppendsItself) {
  MarkedString text("a", Origin::Data);
  text.append("b", Origin::Markup);
  const MarkedString copy = text;
  text.append(copy);
  EXPECT_EQ(text.bytes(), "abab");
  EXPECT_EQ(ranges(text), (std::vector<Range>{{0, 1}, {2, 3}}));
}

}  // namespace
}  // namespace moeflux::jinja
