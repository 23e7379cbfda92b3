#include "text/tokenizer/pretokenizer.h"

#include <fstream>

#include <gtest/gtest.h>

#include "base/json.h"
#include "support/paths.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace moeflux {
namespace {

using Strings = std::vector<std::string>;

Strings split(const Pretokenizer& pretokenizer, const std::string& text) {
  RegexScratch scratch(text.size());
  const Pieces pieces = pretokenizer.split(text, true, scratch);
  Strings out;
  for (std::size_t i = 0; i < pieces.ranges.size(); ++i) out.emplace_back(pieces[i]);
  return out;
}

Strings split_at_dash(SplitBehavior behavior, bool invert = false) {
  Pretokenizer pretokenizer;
  pretokenizer.add(Pretokenizer::Split{{"-", Regex::Kind::Literal, "test"}, behavior, invert});
  return split(pretokenizer, "the-final--countdown");
}

TEST(Pretokenizer, SplitBehaviors) {
  EXPECT_EQ(split_at_dash(SplitBehavior::Removed), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(split_at_dash(SplitBehavior::Isolated),
            (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split_at_dash(SplitBehavior::MergedWithPrevious),
            (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split_at_dash(SplitBehavior::MergedWithNext),
            (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split_at_dash(SplitBehavior::Contiguous),
            (Strings{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split_at_dash(SplitBehavior::Removed, true), (Strings{"-", "-", "-"}));
}

TEST(Pretokenizer, WithoutStepsTheTextIsOnePiece) {
  EXPECT_EQ(split(Pretokenizer(), "a b"), (Strings{"a b"}));
  EXPECT_EQ(split(Pretokenizer(), ""), (Strings{}));
}

TEST(Pretokenizer, PrefixSpaceIsForEveryPiece) {
  Pretokenizer pretokenizer;
  pretokenizer.add(Pretokenizer::Split{
      {" ", Regex::Kind::Literal, "test"}, SplitBehavior::MergedWithNext, false});
  pretokenizer.add(Pretokenizer::PrefixSpace{});
  EXPECT_EQ(split(pretokenizer, "a b"), (Strings{" a", " b"}));
}

TEST(Pretokenizer, AFinalByteAlphabetCanBeLeftToTheModel) {
  Pretokenizer pretokenizer;
  EXPECT_FALSE(pretokenizer.drop_final_bytes_to_visible());
  pretokenizer.add(Pretokenizer::BytesToVisible{});
  EXPECT_EQ(split(pretokenizer, "a b"), (Strings{"a\u0120"
                                                 "b"}));
  EXPECT_TRUE(pretokenizer.drop_final_bytes_to_visible());
  EXPECT_EQ(split(pretokenizer, "a b"), (Strings{"a b"}));
}

// Pieces the reference implementation makes, for every kind of step and some hundred patterns.
TEST(Pretokenizer, AgreesWithTheReference) {
  std::ifstream file(test::source_path("tests/text/tokenizer/reference/splits.jsonl"));
  ASSERT_TRUE(file.is_open());
  int n_cases = 0;
  for (std::string line; std::getline(file, line);) {
    const Json json = parse_json(line, "splits.jsonl");
    const Pretokenizer pretokenizer = read_pretokenizer(json["pre"], "pre");
    const Normalizer normalizer = read_normalizer(json.value("norm", Json()), "norm");
    for (const Json& one : json["cases"]) {
      TrackedText text{one[0].get<std::string>(), {}};
      RegexScratch scratch(text.text.size());
      normalizer.apply(text, scratch);
      EXPECT_EQ(split(pretokenizer, text.text), one[1].get<Strings>())
          << json["pre"] << json.value("norm", Json()) << one[0];
      ++n_cases;
    }
  }
  EXPECT_EQ(n_cases, 894);
}

}  // namespace
}  // namespace moeflux
