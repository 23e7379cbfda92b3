#include "experts/governor.h"

#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "support/random.h"

namespace moeflux {
namespace {

// A machine on which a step takes as long as `time` says for the width in use.
struct Machine {
  std::function<double(int width)> milliseconds;
  double wait_share = 0.5;
  double precision = 0.8;
  double noise = 0;

  std::vector<int> run(LookaheadGovernor& governor, int n_steps) {
    std::vector<int> widths;
    for (int i = 0; i < n_steps; ++i) {
      const int width = governor.width();
      widths.push_back(width);
      double ns = milliseconds(width) * 1e6 * (1 + noise * (random.uniform() - 0.5));
      if (random.chance(0.05)) ns *= 1 + 10 * noise;  // somebody else wanted the machine
      governor.record({.wall_ns = static_cast<std::uint64_t>(ns),
                       .wait_ns = static_cast<std::uint64_t>(wait_share * ns),
                       .misses = 10,
                       .bytes_read = 1000,
                       .prefetched = static_cast<std::uint64_t>(100 * width),
                       .prefetches_used = static_cast<std::uint64_t>(100 * width * precision)});
    }
    return widths;
  }

  test::Random random{1};
};

constexpr int kLongEnough = 200;

TEST(LookaheadGovernor, NeverGuessesWhenNothingWaits) {
  auto governor = LookaheadGovernor::for_top_k(8);
  Machine machine{.milliseconds = [](int) { return 10.0; }, .wait_share = 0.01};
  for (const int width : machine.run(governor, 1000)) EXPECT_EQ(width, 0);
  EXPECT_EQ(governor.describe(), "lookahead: off, nothing waits for the drive");
}

TEST(LookaheadGovernor, FindsTheWidthThatPays) {
  auto governor = LookaheadGovernor::for_top_k(8);
  Machine machine{.milliseconds = [](int width) { return 20.0 - width; }, .noise = 0.1};
  machine.run(governor, kLongEnough);
  EXPECT_EQ(governor.width(), 8);
  const auto report = governor.report();
  EXPECT_FALSE(report.on_trial);
  EXPECT_NEAR(report.gain, 20.0 / 12 - 1, 0.1);
  EXPECT_NEAR(report.precision, 0.8, 0.01);
  EXPECT_NEAR(report.wait_share, 0.5, 0.01);
}

TEST(LookaheadGovernor, StaysOffWhereItHurts) {
  auto governor = LookaheadGovernor::for_top_k(8);
  Machine machine{.milliseconds = [](int width) { return 20.0 + width; }, .noise = 0.1};
  machine.run(governor, kLongEnough);
  EXPECT_EQ(governor.width(), 0);
  EXPECT_EQ(governor.describe(), "lookahead: off, it did not pay when tried");
}

TEST(LookaheadGovernor, PrefersFewerGuessesWhenMoreAddNothing) {
  auto governor = LookaheadGovernor::for_top_k(8);
  Machine machine{.milliseconds = [](int width) { return width > 0 ? 10.0 : 20.0; }};
  machine.run(governor, kLongEnough);
  EXPECT_EQ(governor.width(), 4);
}

TEST(LookaheadGovernor, PrefersMoreGuessesWhenNearlyAllAreUsed) {
  auto governor = LookaheadGovernor::for_top_k(8);
  Machine machine{.milliseconds = [](int width) { return width > 0 ? 10.0 : 20.0; },
                  .precision = 0.95};
  machine.run(governor, kLongEnough);
  EXPECT_EQ(governor.width(), 8);
}

TEST(LookaheadGovernor, MoreGuessesThatAreUsedButSlowAreNotChosen) {
  auto governor = LookaheadGovernor::for_top_k(8);
  Machine machine{
      .milliseconds = [](int width) { return width > 4   ? 11.0
                                             : width > 0 ? 10.0
                                                         : 20.0; },
      .precision = 1};
  machine.run(governor, kLongEnough);
  EXPECT_EQ(governor.width(), 4);
}

TEST(LookaheadGovernor, TriesLessOftenWhereTrialsConfirmTheChoice) {
  auto governor = LookaheadGovernor::for_top_k(8);
  Machine machine{.milliseconds = [](int width) { return 20.0 - width; }};
  const auto off = [&](int n_steps) {
    const std::vector<int> widths = machine.run(governor, n_steps);
    return std::count(widths.begin(), widths.end(), 0);
  };
  const auto first = off(2000);
  EXPECT_GT(first, 0);
  EXPECT_LE(2 * off(2000), first);
  EXPECT_EQ(governor.report().switches, 1u);
}

TEST(LookaheadGovernor, AGainWithinTheNoiseIsNoGain) {
  auto governor = LookaheadGovernor::for_top_k(8);
  Machine machine{.milliseconds = [](int width) { return width > 0 ? 19.8 : 20.0; }};
  machine.run(governor, kLongEnough);
  EXPECT_EQ(governor.width(), 0);
}

TEST(LookaheadGovernor, ChangesItsMindWhenTheMachineDoes) {
  auto governor = LookaheadGovernor::for_top_k(8);
  bool pays = true;
  Machine machine{.milliseconds = [&](int width) { return pays ? 20.0 - width : 20.0 + width; }};
  machine.run(governor, kLongEnough);
  EXPECT_EQ(governor.width(), 8);
  pays = false;
  machine.run(governor, 400);
  EXPECT_EQ(governor.width(), 0);
  EXPECT_EQ(governor.report().switches, 2u);
}

TEST(LookaheadGovernor, AModelWithoutExpertsHasNothingToGuess) {
  auto governor = LookaheadGovernor::for_top_k(0);
  Machine machine{.milliseconds = [](int) { return 10.0; }};
  for (const int width : machine.run(governor, 100)) EXPECT_EQ(width, 0);
}

TEST(LookaheadGovernor, OneExpertPerToken) {
  auto governor = LookaheadGovernor::for_top_k(1);
  Machine machine{.milliseconds = [](int width) { return 20.0 - 5 * width; }};
  machine.run(governor, kLongEnough);
  EXPECT_EQ(governor.width(), 1);
}

constexpr int kChosen = 8, kExperts = 256;
constexpr int kEnoughPasses = 200;

// A pass takes as long as `time` says for its rows and the width in use.
using PassTime = std::function<double(std::int64_t n_rows, int width)>;

void run_passes(LookaheadGovernors& governors, std::int64_t n_rows, int n_passes,
                const PassTime& ms) {
  for (int i = 0; i < n_passes; ++i) {
    const auto ns = static_cast<std::uint64_t>(1e6 * ms(n_rows, governors.width(n_rows)));
    governors.record(n_rows, {.wall_ns = ns, .wait_ns = ns / 2});
  }
}

TEST(LookaheadGovernors, EachLengthOfAPassDecidesForItself) {
  LookaheadGovernors governors(kChosen, kExperts);
  const PassTime ms = [](std::int64_t n_rows, int width) {
    const int gain = n_rows < 4 ? -width : width;
    return static_cast<double>(n_rows) * (20.0 - gain);
  };
  for (const std::int64_t n_rows : {1, 2, 8}) run_passes(governors, n_rows, kEnoughPasses, ms);
  EXPECT_EQ(governors.width(1), 0);
  EXPECT_EQ(governors.width(2), 0);
  EXPECT_EQ(governors.width(8), 8);
  EXPECT_EQ(governors.last().describe(),
            "lookahead: 8 experts per layer, 0 % of prefetches used, +67 % speed");
  run_passes(governors, 2, 1, ms);
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
    run_passes(governors, width > 0 ? 3 : 2, 1, [](std::int64_t n_rows, int prefetches) {
      return static_cast<double>(n_rows) * (20.0 - prefetches / 2.0);
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
    run_passes(governors, n_rows, kEnoughPasses, [](std::int64_t, int) { return 1.0; });
    EXPECT_EQ(governors.width(n_rows), 0);
  }
}

}  // namespace
}  // namespace moeflux
