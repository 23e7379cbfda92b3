#include "text/tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace moeflux {
namespace {

TrackedText apply(Normalizer::Step step, TrackedText text) {
  Normalizer normalizer;
  normalizer.add(std::move(step));
  RegexScratch scratch(text.text.size());
  normalizer.apply(text, scratch);
  return text;
}

// Marks are written as a string of '.' (markup) and 'D' (data).
TrackedText tracked(std::string text, std::string_view marks) {
  std::string is_data;
  for (const char c : marks) is_data += c == 'D' ? '\1' : '\0';
  return {std::move(text), std::move(is_data)};
}

std::string marks_of(const TrackedText& text) {
  std::string marks;
  for (const char c : text.is_data) marks += c == '\1' ? 'D' : '.';
  return marks;
}

TEST(Normalizer, WithoutStepsTextStays) {
  Normalizer normalizer;
  RegexScratch scratch(0);
  TrackedText text{"e\u0301 X", {}};
  normalizer.apply(text, scratch);
  EXPECT_EQ(text.text, "e\u0301 X");
}

TEST(Normalizer, StepsFollowOneAnother) {
  Normalizer normalizer;
  normalizer.add(Normalizer::Form{NormalForm::Nfd});
  normalizer.add(Normalizer::Lowercase{});
  normalizer.add(Normalizer::Replace{{"\\s+", Regex::Kind::Pattern, "test"}, "_"});
  normalizer.add(Normalizer::Strip{false, true});
  normalizer.add(Normalizer::Prepend{"> "});
  RegexScratch scratch(100);
  TrackedText text{"\u00C9  B\t", {}};
  normalizer.apply(text, scratch);
  EXPECT_EQ(text.text, "> e\u0301_b_");
}

TEST(Normalizer, StripAndPrependOfNothing) {
  EXPECT_EQ(apply(Normalizer::Strip{true, true}, {" \u3000x y\n", {}}).text, "x y");
  EXPECT_EQ(apply(Normalizer::Strip{true, false}, {" x ", {}}).text, "x ");
  EXPECT_EQ(apply(Normalizer::Strip{true, true}, {" \t", {}}).text, "");
  EXPECT_EQ(apply(Normalizer::Prepend{"x"}, {"", {}}).text, "");
}

TEST(Normalizer, MarksMoveWithTheText) {
  const TrackedText lower = apply(Normalizer::Lowercase{}, tracked("A\u0130B", "..D."));
  EXPECT_EQ(lower.text, "ai\u0307b");
  EXPECT_EQ(marks_of(lower), ".DDD.");
  const TrackedText replaced = apply(
      Normalizer::Replace{{"ab", Regex::Kind::Literal, "test"}, "x--"}, tracked("ab ab", ".D..."));
  EXPECT_EQ(replaced.text, "x-- x--");
  EXPECT_EQ(marks_of(replaced), "DDD....");
  EXPECT_EQ(marks_of(apply(Normalizer::Strip{true, true}, tracked("  a b ", "D..D.."))), ".D.");
  EXPECT_EQ(marks_of(apply(Normalizer::Prepend{"__"}, tracked("ab", "D."))), "DDD.");
  EXPECT_EQ(marks_of(apply(Normalizer::BytesToVisible{}, tracked("a b", "D.D"))), "D..D");
}

TEST(Normalizer, RunawayReplacementsAreErrors) {
  const Normalizer::Replace step{{"a", Regex::Kind::Literal, "test"}, std::string(5000, 'a')};
  EXPECT_EQ(apply(step, {"aa", {}}).text.size(), 10'000u);
  EXPECT_THROW(apply(step, {std::string(1000, 'a'), {}}), Error);
  Normalizer twice;
  for (int i = 0; i < 9; ++i) twice.add(step);
  RegexScratch scratch(1);
  TrackedText text{"a", {}};
  EXPECT_THROW(twice.apply(text, scratch), Error);
}

// A data character that composes with markup makes the result data; ASCII markup around it stays
// markup.
TEST(Normalizer, CompositionAcrossABorderIsData) {
  const TrackedText text = apply(Normalizer::Form{NormalForm::Nfc}, tracked("<e\u0301>", "..DD."));
  EXPECT_EQ(text.text, "<\u00E9>");
  EXPECT_EQ(marks_of(text), ".DD.");
  const TrackedText wide =
      apply(Normalizer::Form{NormalForm::Nfkc}, tracked("a\uFF1Cb\uFF1C", ".DDD...."));
  EXPECT_EQ(wide.text, "a<b<");
  EXPECT_EQ(marks_of(wide), "DD..");
}

}  // namespace
}  // namespace moeflux
