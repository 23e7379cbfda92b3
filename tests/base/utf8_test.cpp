#include "base/utf8.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

TEST(Utf8, DecodesEveryLength) {
  const std::string text = "a\u00E9\u4E2D\U0001F600";
  const std::size_t lengths[] = {1, 2, 3, 4};
  const char32_t code_points[] = {U'a', U'\u00E9', U'\u4E2D', U'\U0001F600'};
  std::size_t at = 0;
  for (int i = 0; i < 4; ++i) {
    const Utf8Step step = decode_utf8(text, at);
    EXPECT_TRUE(step.valid);
    EXPECT_EQ(step.length, lengths[i]);
    EXPECT_EQ(step.code_point, code_points[i]);
    at += step.length;
  }
  EXPECT_EQ(at, text.size());
}

TEST(Utf8, RoundTripsEveryCodePoint) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Step step = decode_utf8(text, 0);
    ASSERT_TRUE(step.valid) << static_cast<unsigned>(c);
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.length, text.size());
  }
}

TEST(Utf8, RefusesOverlongSurrogatesAndTooLarge) {
  for (const char* text :
       {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xF0\x80\x80\x80", "\xED\xA0\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80", "\xFF"}) {
    EXPECT_EQ(find_invalid_utf8(text), 0u);
    EXPECT_FALSE(decode_utf8(text, 0).valid);
  }
  EXPECT_EQ(find_invalid_utf8("ab\xFF"), 2u);
  EXPECT_EQ(find_invalid_utf8("ab\u00E9"), std::string_view::npos);
}

TEST(Utf8, TellsTruncatedFromWrong) {
  EXPECT_TRUE(decode_utf8("\xE4\xB8", 0).truncated);
  EXPECT_EQ(decode_utf8("\xE4\xB8", 0).length, 2u);
  EXPECT_TRUE(decode_utf8("\xF0", 0).truncated);
  EXPECT_FALSE(decode_utf8("\xE4x", 0).truncated);
  EXPECT_FALSE(decode_utf8("\xFF", 0).truncated);
  EXPECT_FALSE(decode_utf8("\xE0\x80", 0).truncated);  // no second byte could follow
}

TEST(Utf8, ReplacesMaximalSubparts) {
  const auto bad = std::string(kReplacementCharacter);
  EXPECT_EQ(replace_invalid_utf8("a\xFFz"), "a" + bad + "z");
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8"), bad);  // one unfinished character
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8x"), bad + "x");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), bad + bad + bad);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98\xF0"), bad + bad);
  EXPECT_EQ(replace_invalid_utf8("ok\u00E9"), "ok\u00E9");
}

}  // namespace
}  // namespace moeflux
