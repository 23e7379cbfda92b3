#include "text/tokenizer/unicode.h"

#include <chrono>

#include <gtest/gtest.h>

#include "base/utf8.h"

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

// Of all characters that any version up to 17 decomposes, orders, or puts into a class, but for
// regular blocks of ideographs and syllables.
template <class F>
void for_each_interesting(F f) {
  struct Block {
    char32_t begin, end;
  };
  for (const Block& block : {Block{0x80, 0x3400}, Block{0xA000, 0xAC00}, Block{0xF900, 0x20000},
                             Block{0x2F800, 0x2FA20}}) {
    for (char32_t c = block.begin; c < block.end; ++c) {
      std::string text;
      append_utf8(text, c);
      f(c, text);
    }
  }
}

class Fnv {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325u;
};

// The hashes are of what tokenizers 0.23.1 makes of the same texts.
TEST(Unicode, NormalFormsAreThoseOfTheTokenizersLibrary) {
  constexpr std::uint64_t kHashes[] = {0xBFEE53B1B023EB3C, 0x65B5EA1A90FE2601, 0xEC1BB64BE2413F12,
                                       0xC61190676B7E166A};
  for (std::size_t i = 0; i < std::size(kForms); ++i) {
    Fnv changed;
    for_each_interesting([&](char32_t, const std::string& c) {
      // Alone, behind a mark of a high class, and before one of a low class.
      for (const std::string& text : {c, "x\u0315" + c, "x" + c + "\u0316"}) {
        const std::string normal = to_normal_form(text, kForms[i]);
        if (normal != text) changed.add(normal + '\xFF');
      }
    });
    EXPECT_EQ(changed.value(), kHashes[i]) << i;
  }
}

TEST(Unicode, ClassesAreThoseOfTheTokenizersLibrary) {
  Fnv numeric, punctuation, white_space, lowercase;
  for_each_interesting([&](char32_t c, const std::string& text) {
    if (is_numeric(c)) numeric.add(text);
    if (is_punctuation(c)) punctuation.add(text);
    if (is_white_space(c)) white_space.add(text);
    std::string lower;
    append_lowercase(lower, c);
    if (lower != text) lowercase.add(text + lower);
  });
  EXPECT_EQ(numeric.value(), 0x7DDCFE12AC1071D4u);
  EXPECT_EQ(punctuation.value(), 0x125A6215104CCFC2u);
  EXPECT_EQ(white_space.value(), 0xD590DC4E6B21DCE1u);
  EXPECT_EQ(lowercase.value(), 0x3C0AB3932BE8DCA2u);
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

TEST(Unicode, ClassesOfLaterCharacters) {
  for (const char32_t c : {U'\U00010D40', U'\U00011DE0'}) EXPECT_TRUE(is_numeric(c));
  for (const char32_t c : {U'\u2E43', U'\U0001E95E'}) EXPECT_FALSE(is_punctuation(c));
  for (const char32_t c : {U'\u2E42', U'\u166D', U'\U000111C9'}) EXPECT_TRUE(is_punctuation(c));
  std::string out;
  for (const char32_t c : {U'\uA7CB', U'\U00010D51'}) append_lowercase(out, c);
  EXPECT_EQ(out, "\u0264\U00010D71");
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
