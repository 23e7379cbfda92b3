#include "runtime/ngram_drafter.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

using Tokens = std::vector<TokenId>;

Tokens draft(NgramDrafter& drafter, const Tokens& tokens, TokenId next, int count) {
  Tokens drafts{99};  // what was there is forgotten
  drafter.draft(tokens, next, count, drafts);
  return drafts;
}

TEST(NgramDrafter, ProposesWhatFollowedBefore) {
  NgramDrafter drafter;
  const Tokens text{1, 2, 3, 4, 5, 6, 9, 1, 2};
  EXPECT_EQ(draft(drafter, text, 3, 2), (Tokens{4, 5}));
  EXPECT_EQ(draft(drafter, text, 3, 9), (Tokens{4, 5, 6, 9, 1, 2}));  // as far as the text goes
}

TEST(NgramDrafter, NothingWithoutAnOccurrence) {
  NgramDrafter drafter;
  EXPECT_EQ(draft(drafter, {}, 1, 3), Tokens{});
  EXPECT_EQ(draft(drafter, {1, 2, 3}, 4, 3), Tokens{});
  EXPECT_EQ(draft(drafter, {1, 2, 7, 2}, 1, 3), Tokens{});  // two tokens agree, three must
}

TEST(NgramDrafter, TheLongerAndTheLaterOccurrenceWin) {
  NgramDrafter drafter;
  EXPECT_EQ(draft(drafter, {1, 2, 3, 10, 1, 2, 3, 20, 1, 2}, 3, 1), (Tokens{20}));
  NgramDrafter another;
  EXPECT_EQ(draft(another, {5, 1, 2, 3, 10, 6, 1, 2, 3, 20, 5, 1, 2}, 3, 1), (Tokens{10}));
}

TEST(NgramDrafter, FollowsASequenceThatGrowsAndIsCut) {
  NgramDrafter drafter;
  Tokens text{1, 2, 3, 4};
  EXPECT_EQ(draft(drafter, text, 1, 1), Tokens{});
  text.insert(text.end(), {1, 2});
  EXPECT_EQ(draft(drafter, text, 3, 1), (Tokens{4}));
  EXPECT_EQ(draft(drafter, {7, 1, 2}, 3, 1), Tokens{});  // another text
  EXPECT_EQ(draft(drafter, {7, 1, 2, 3, 8, 1, 2}, 3, 1), (Tokens{8}));
}

}  // namespace
}  // namespace moeflux
