#include "experts/lookahead_governors.h"

#include <functional>

#include <gtest/gtest.h>

namespace moeflux {
namespace {

constexpr int kChosen = 8, kExperts = 256;
constexpr int kEnoughPasses = 200;

// A pass takes as long as `time` says for its rows and the width in use.
using Time = std::function<double(std::int64_t n_rows, int width)>;

void run(LookaheadGovernors& governors, std::int64_t n_rows, int n_passes, const Time& ms) {
  for (int i = 0; i < n_passes; ++i) {
    const auto ns = static_cast<std::uint64_t>(1e6 * ms(n_rows, governors.width(n_rows)));
    governors.record(n_rows, {.wall_ns = ns, .wait_ns = ns / 2});
  }
}

TEST(LookaheadGovernors, EachLengthOfAPassDecidesForItself) {
  LookaheadGovernors governors(kChosen, kExperts);
  const Time ms = [](std::int64_t n_rows, int width) {
    const int gain = n_rows < 4 ? -width : width;
    return static_cast<double>(n_rows) * (20.0 - gain);
  };
  for (const std::int64_t n_rows : {1, 2, 8}) run(governors, n_rows, kEnoughPasses, ms);
  EXPECT_EQ(governors.width(1), 0);
  EXPECT_EQ(governors.width(2), 0);
  EXPECT_EQ(governors.width(8), 8);
  EXPECT_EQ(governors.last().describe(),
            "lookahead: 8 experts per layer, 0 % of guesses used, +67 % speed");
  run(governors, 2, 1, ms);
  EXPECT_EQ(governors.last().describe(), "lookahead: off, it did not pay when tried");
}

TEST(LookaheadGovernors, SeveralRowsGuessUntilItWasTried) {
  const LookaheadGovernors governors(kChosen, kExperts);
  EXPECT_EQ(governors.width(1), 0);
  for (const std::int64_t n_rows : {2, 3, 16, 255}) EXPECT_EQ(governors.width(n_rows), 8);
}

// Two and three rows share a governor: the longer passes must not make their width look slow.
TEST(LookaheadGovernors, PassesAreComparedByTheirTimePerRow) {
  LookaheadGovernors governors(kChosen, kExperts);
  for (int i = 0; i < kEnoughPasses; ++i) {
    const int width = governors.width(2);
    run(governors, width > 0 ? 3 : 2, 1, [](std::int64_t n_rows, int guesses) {
      return static_cast<double>(n_rows) * (20.0 - guesses / 2.0);
    });
  }
  EXPECT_EQ(governors.width(2), 8);
  EXPECT_EQ(governors.width(3), 8);
}

TEST(LookaheadGovernors, WhereAllExpertsAreNeededNothingIsTried) {
  LookaheadGovernors governors(kChosen, kExperts);
  EXPECT_FALSE(surely_all_experts(255, kChosen, kExperts));
  EXPECT_TRUE(surely_all_experts(256, kChosen, kExperts));
  for (int i = 0; i < kEnoughPasses; ++i) {
    EXPECT_EQ(governors.width(256), 8);
    EXPECT_EQ(governors.width(4096), 8);
    governors.record(256, {.wall_ns = 1000, .wait_ns = 500});
  }
}

TEST(LookaheadGovernors, AModelWithoutExpertsHasNothingToGuess) {
  LookaheadGovernors governors(0, 0);
  for (const std::int64_t n_rows : {1, 2, 512}) {
    run(governors, n_rows, kEnoughPasses, [](std::int64_t, int) { return 1.0; });
    EXPECT_EQ(governors.width(n_rows), 0);
  }
}

}  // namespace
}  // namespace moeflux
