#include "text/unicode.h"

#include <chrono>

#include <gtest/gtest.h>

namespace moeflux {
namespace {

TEST(Unicode, NormalForms) {
  EXPECT_EQ(to_normal_form("e\u0301", NormalForm::Nfc), "\u00E9");
  EXPECT_EQ(to_normal_form("\u00E9", NormalForm::Nfd), "e\u0301");
  EXPECT_EQ(to_normal_form("\uFB01", NormalForm::Nfc), "\uFB01");
  EXPECT_EQ(to_normal_form("\uFB01", NormalForm::Nfkc), "fi");
  EXPECT_EQ(to_normal_form("\u1E9B\u0323", NormalForm::Nfc), "\u1E9B\u0323");
  EXPECT_EQ(to_normal_form("\u1E9B\u0323", NormalForm::Nfd), "\u017F\u0323\u0307");
  EXPECT_EQ(to_normal_form("\u1E9B\u0323", NormalForm::Nfkc), "\u1E69");
  EXPECT_EQ(to_normal_form("\u1100\u1161\u11A8", NormalForm::Nfc), "\uAC01");  // Hangul
  EXPECT_EQ(to_normal_form("\uAC01", NormalForm::Nfd), "\u1100\u1161\u11A8");
  EXPECT_EQ(to_normal_form("\u2126", NormalForm::Nfc), "\u03A9");  // a singleton
  EXPECT_EQ(to_normal_form("\u0958", NormalForm::Nfc),
            "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(to_normal_form("a\u0315\u0300", NormalForm::Nfc), "\u00E0\u0315");
  EXPECT_EQ(to_normal_form("\uFDFA", NormalForm::Nfkd).size(), 33u);  // the longest decomposition
  EXPECT_EQ(to_normal_form("", NormalForm::Nfc), "");
  EXPECT_EQ(to_normal_form("plain", NormalForm::Nfkd), "plain");
}

constexpr NormalForm kForms[] = {NormalForm::Nfc, NormalForm::Nfd, NormalForm::Nfkc,
                                 NormalForm::Nfkd};

// What the tokenizers library makes of them, whose tables are of Unicode 9.
TEST(Unicode, LaterCharactersHaveNoNormalForm) {
  for (const NormalForm form : kForms) {
    for (const std::string text : {
             "\U00011938",            // decomposes since 13
             "\U00011935\U00011930",  // and is composed of these
             "\U000105D2\u0307",      // composes since 16
             "\u32FF",                // compatibility, since 12.1
             "\uA7F2\U0001E030",      // since 14 and 15
             "\U0001FBF9",            // since 13
             "a\u0301\u1ABF",         // marks of lower classes, which would go before the others
             "a\u0301\u1DF9",
             "a\u0301\U00010F46\u0323",
         }) {
      const bool composes = form == NormalForm::Nfc || form == NormalForm::Nfkc;
      std::string expected = text;
      if (composes && text.starts_with("a\u0301")) expected.replace(0, 3, "\u00E1");
      EXPECT_EQ(to_normal_form(text, form), expected);
    }
    // The marks behind one are ordered among themselves.
    EXPECT_EQ(to_normal_form("a\u1ABF\u0301\u0323", form), "a\u1ABF\u0323\u0301");
  }
  // Of Unicode 9 and older, next to such ranges.
  EXPECT_EQ(to_normal_form("a\u0301\u1ABD", NormalForm::Nfd), "a\u1ABD\u0301");
  EXPECT_EQ(to_normal_form("a\u0301\u1DF5\u0323", NormalForm::Nfd), "a\u0323\u0301\u1DF5");
  EXPECT_EQ(to_normal_form("\u32FE", NormalForm::Nfkc), "\u30F2");
}

TEST(Unicode, ManyMarksTakeNoQuadraticTime) {
  std::string text = "a";
  for (int i = 0; i < 150'000; ++i) text += i % 2 == 0 ? "\u0315" : "\u0327";  // classes 232, 202
  const auto start = std::chrono::steady_clock::now();
  const std::string normal = to_normal_form(text, NormalForm::Nfd);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(normal.size(), text.size());
  EXPECT_EQ(normal.substr(0, 5), "a\u0327\u0327");
  EXPECT_EQ(normal.substr(normal.size() - 2), "\u0315");
}

TEST(Unicode, Lowercase) {
  std::string out;
  for (const char32_t c : {U'A', U'z', U'\u00C9', U'\u0130', U'\u03A3', U'\u4E2D'})
    append_lowercase(out, c);
  EXPECT_EQ(out, "az\u00E9i\u0307\u03C3\u4E2D");
}

TEST(Unicode, CharacterClasses) {
  for (const char32_t c : {U' ', U'\t', U'\r', U'\u0085', U'\u00A0', U'\u2028', U'\u3000'}) {
    EXPECT_TRUE(is_white_space(c)) << static_cast<unsigned>(c);
  }
  for (const char32_t c : {U'a', U'\u180E', U'\u200B', U'\u200D', U'\uFEFF', U'\x1F'}) {
    EXPECT_FALSE(is_white_space(c)) << static_cast<unsigned>(c);
  }
  for (const char32_t c : {U'7', U'\u0663', U'\u00BD', U'\u2167'}) EXPECT_TRUE(is_numeric(c));
  for (const char32_t c : {U'a', U'\u4E00', U'/', U':'}) EXPECT_FALSE(is_numeric(c));
  for (const char32_t c : {U'!', U'$', U'~', U'\u3001', U'\u00BF'}) EXPECT_TRUE(is_punctuation(c));
  for (const char32_t c : {U'a', U' ', U'\u20AC', U'\u00D7'}) EXPECT_FALSE(is_punctuation(c));
  for (const char32_t c :
       {U'a', U'_', U'9', U'\u0301', U'\u4E2D', U'\u200D', U'\u24B6', U'\u2160'}) {
    EXPECT_TRUE(is_word(c)) << static_cast<unsigned>(c);
  }
  for (const char32_t c : {U'-', U' ', U'\u00B2', U'\u2460'}) EXPECT_FALSE(is_word(c));
}

}  // namespace
}  // namespace moeflux
