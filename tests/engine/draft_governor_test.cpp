#include "engine/draft_governor.h"

#include <functional>

#include <gtest/gtest.h>

#include "support/random.h"

namespace moeflux {
namespace {

// A pass takes `seconds(depth)`, and each draft is right with the same probability after a right
// one.
void run(DraftGovernor& governor, int n_passes, double right,
         const std::function<double(int)>& seconds) {
  test::Random random(3);
  for (int i = 0; i < n_passes; ++i) {
    const int depth = governor.depth();
    std::int64_t n = 1;
    while (n <= depth && random.chance(right)) ++n;
    governor.record(n, seconds(depth) * random.between(0.97, 1.03));
  }
}

constexpr int kTrials = 8 * 3 * 2;

TEST(DraftGovernor, NeverDraftsWithoutDepth) {
  DraftGovernor governor(0);
  run(governor, 100, 1, [](int) { return 1.0; });
  EXPECT_EQ(governor.depth(), 0);
  EXPECT_EQ(governor.describe(), "drafts: off");
}

TEST(DraftGovernor, FindsTheDepthThatPays) {
  DraftGovernor governor(2);
  EXPECT_EQ(governor.depth(), 2);
  EXPECT_TRUE(governor.report().on_trial);
  run(governor, kTrials, 0.9, [](int depth) { return 1 + 0.1 * depth; });
  EXPECT_FALSE(governor.report().on_trial);
  EXPECT_EQ(governor.depth(), 2);
  EXPECT_GT(governor.report().gain, 0.5);
  EXPECT_EQ(governor.report().switches, 1u);
}

TEST(DraftGovernor, SwitchesOffWhereEveryDraftIsAnotherRead) {
  DraftGovernor governor(2);
  run(governor, kTrials, 0.5, [](int depth) { return 1.0 + depth; });
  EXPECT_EQ(governor.depth(), 0);
  EXPECT_EQ(governor.describe(), "drafts: off, they did not pay when tried");
}

TEST(DraftGovernor, WhereItIsDoubtfulItTriesLater) {
  DraftGovernor governor(2, /*doubtful=*/true);
  EXPECT_EQ(governor.depth(), 0);
  EXPECT_EQ(governor.describe(), "drafts: off so far");
  run(governor, 63, 0.9, [](int depth) { return 1 + 0.1 * depth; });
  EXPECT_EQ(governor.depth(), 0);
  run(governor, 1 + kTrials, 0.9, [](int depth) { return 1 + 0.1 * depth; });
  EXPECT_EQ(governor.depth(), 2);
  EXPECT_FALSE(governor.report().on_trial);
}

TEST(DraftGovernor, LooksAgainLater) {
  DraftGovernor governor(2);
  run(governor, kTrials, 0.5, [](int depth) { return 1.0 + depth; });
  ASSERT_EQ(governor.depth(), 0);
  run(governor, 256 + kTrials, 0.95, [](int depth) { return 1 + 0.1 * depth; });
  EXPECT_EQ(governor.depth(), 2);
  EXPECT_EQ(governor.report().switches, 1u);
}

}  // namespace
}  // namespace moeflux
