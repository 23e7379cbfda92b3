#include "base/memory_pressure.h"

#include <gtest/gtest.h>

#include "support/fake_root.h"

namespace moeflux::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST(MemoryPressureFileTest, ReadsBothLines) {
  const auto pressure = parse_memory_pressure(
      "some avg10=1.50 avg60=0.25 avg300=0.01 total=123456\nfull avg10=0.50 avg60=0.00 avg300=0.00 "
      "total=99\n");
  ASSERT_TRUE(pressure);
  EXPECT_DOUBLE_EQ(pressure->some.avg10, 1.5);
  EXPECT_DOUBLE_EQ(pressure->some.avg60, 0.25);
  EXPECT_DOUBLE_EQ(pressure->some.avg300, 0.01);
  EXPECT_EQ(pressure->some.total_us, 123456);
  EXPECT_DOUBLE_EQ(pressure->full.avg10, 0.5);
  EXPECT_EQ(pressure->full.total_us, 99);
}

TEST(MemoryPressureFileTest, MalformedTextIsNoPressure) {
  for (const char* text : {"", "full avg10=1 total=5", "garbage", "\n\n"}) {
    EXPECT_FALSE(parse_memory_pressure(text)) << text;
  }
  const auto odd =
      parse_memory_pressure("some avg10=nan avg60=1e999 avg300=-3 total=-5 x= =y total");
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->some.avg10, 0);
  EXPECT_EQ(odd->some.avg60, 0);
  EXPECT_EQ(odd->some.avg300, 0);
  EXPECT_EQ(odd->some.total_us, 0);
}

TEST(MemoryPressureFileTest, TheOwnGroupBeforeTheMachine) {
  const FakeRoot root;
  EXPECT_FALSE(read_memory_pressure(root.path()));
  root.write("/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
  EXPECT_EQ(read_memory_pressure(root.path())->some.total_us, 1);
  root.unified("/a");
  root.make_directory("/sys/fs/cgroup/a");
  EXPECT_EQ(read_memory_pressure(root.path())->some.total_us, 1);
  root.write("/sys/fs/cgroup/a/memory.pressure",
             "some avg10=0.00 avg60=0.00 avg300=0.00 total=2\n");
  EXPECT_EQ(read_memory_pressure(root.path())->some.total_us, 2);
}

// Feeds samples and applies what is decided to the cache, as an engine does.
class DecisionTest : public ::testing::Test {
 protected:
  DecisionTest() {
    policy_.machine_reserve = kGiB;
    policy_.cgroup_reserve = 400 * kMiB;
  }

  MemoryDecision at(double seconds, const MemorySample& levels) {
    MemorySample sample = levels;
    sample.seconds = seconds;
    const MemoryDecision decision = decide(policy_, state_, sample, cache_);
    if (decision.action == MemoryAction::Shrink) cache_.current -= decision.bytes;
    if (decision.action == MemoryAction::Grow) cache_.current += decision.bytes;
    EXPECT_GE(cache_.current, cache_.floor);
    EXPECT_LE(cache_.current, cache_.ceiling);
    EXPECT_EQ(decision.bytes == 0, decision.action == MemoryAction::Hold);
    return decision;
  }
  static MemorySample machine(std::uint64_t available) { return {.available = available}; }
  static MemorySample stalls(double some_seconds, double full_seconds = 0) {
    return {.available = 8 * kGiB,
            .some_us = static_cast<std::uint64_t>(some_seconds * 1e6),
            .full_us = static_cast<std::uint64_t>(full_seconds * 1e6)};
  }

  PressurePolicy policy_;
  PressureState state_;
  CacheSize cache_{.current = 8 * kGiB, .floor = 256 * kMiB, .ceiling = 8 * kGiB};
};

TEST_F(DecisionTest, HoldsWhileAllIsWell) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(at(i * 0.5, machine(4 * kGiB)).action, MemoryAction::Hold);
  }
}

TEST_F(DecisionTest, GivesBackWhatTheMachineMisses) {
  EXPECT_EQ(at(0, machine(600 * kMiB)).action, MemoryAction::Hold);  // below the reserve: not yet
  const MemoryDecision decision = at(0.1, machine(256 * kMiB));
  EXPECT_EQ(decision.action, MemoryAction::Shrink);
  EXPECT_EQ(decision.cause, MemoryCause::Machine);
  EXPECT_EQ(decision.bytes, 512 * kMiB);  // to three quarters of the reserve
}

TEST_F(DecisionTest, GivesBackWhatTheGroupMisses) {
  MemorySample sample = machine(10 * kGiB);
  sample.cgroup_left = 100 * kMiB;
  const MemoryDecision decision = at(0, sample);
  EXPECT_EQ(decision.action, MemoryAction::Shrink);
  EXPECT_EQ(decision.cause, MemoryCause::Cgroup);
  EXPECT_EQ(decision.bytes, 200 * kMiB);
}

TEST_F(DecisionTest, NeverShrinksBelowTheFloor) {
  cache_.current = 300 * kMiB;
  EXPECT_EQ(at(0, machine(0)).bytes, 44 * kMiB);
  EXPECT_EQ(at(0.1, machine(0)).action, MemoryAction::Hold);
  EXPECT_EQ(cache_.current, cache_.floor);
}

TEST_F(DecisionTest, StallsTakeASixteenthPerWindow) {
  at(0, stalls(0));
  EXPECT_EQ(at(1, stalls(0.5)).action, MemoryAction::Hold);  // the window is not over
  const MemoryDecision decision = at(2, stalls(0.5));        // 25 %
  EXPECT_EQ(decision.action, MemoryAction::Shrink);
  EXPECT_EQ(decision.cause, MemoryCause::Stalls);
  EXPECT_EQ(decision.bytes, 512 * kMiB);
  EXPECT_EQ(at(2.1, stalls(0.6)).action, MemoryAction::Hold);
  EXPECT_EQ(at(4, stalls(0.8)).bytes, (8 * kGiB - 512 * kMiB) / 16);
  EXPECT_EQ(at(6, stalls(0.9)).action, MemoryAction::Hold);  // 5 %
}

TEST_F(DecisionTest, FewFullStallsAreEnough) {
  at(0, stalls(0));
  EXPECT_EQ(at(2, stalls(0.1, 0.03)).action, MemoryAction::Hold);
  EXPECT_EQ(at(4, stalls(0.2, 0.08)).cause, MemoryCause::Stalls);
}

TEST_F(DecisionTest, StallsOfOthersDoNotCountWhileMuchIsFree) {
  policy_.machine_stall_below = 4 * kGiB;
  policy_.cgroup_stall_below = 0;
  at(0, stalls(0));
  EXPECT_EQ(at(2, stalls(2)).action, MemoryAction::Hold);
  MemorySample scarce = stalls(4);
  scarce.available = 3 * kGiB;
  EXPECT_EQ(at(4, scarce).action, MemoryAction::Shrink);
}

TEST_F(DecisionTest, GrowsBackSlowly) {
  at(0, machine(0));
  ASSERT_EQ(cache_.current, 8 * kGiB - 768 * kMiB);
  EXPECT_EQ(at(9.9, machine(6 * kGiB)).action, MemoryAction::Hold);
  const MemoryDecision first = at(10, machine(6 * kGiB));
  EXPECT_EQ(first.action, MemoryAction::Grow);
  EXPECT_EQ(first.bytes, (8 * kGiB - 256 * kMiB) / 32);
  EXPECT_EQ(at(10.5, machine(6 * kGiB)).action, MemoryAction::Hold);
  EXPECT_EQ(at(11, machine(6 * kGiB)).action, MemoryAction::Grow);
  for (int i = 12; i < 30; ++i) at(i, machine(6 * kGiB));
  EXPECT_EQ(cache_.current, cache_.ceiling);
}

TEST_F(DecisionTest, GrowsOnlyIntoWhatIsSpare) {
  cache_.current = kGiB;
  at(0, machine(6 * kGiB));
  EXPECT_EQ(at(20, machine(kGiB)).action, MemoryAction::Hold);  // all of it is reserve
  EXPECT_EQ(at(21, machine(kGiB + 64 * kMiB)).bytes, 32 * kMiB);
  MemorySample grouped = machine(6 * kGiB);
  grouped.cgroup_left = 410 * kMiB;
  EXPECT_EQ(at(22, grouped).action, MemoryAction::Hold);
}

TEST_F(DecisionTest, HoldsWhileStallsLast) {
  cache_.current = cache_.floor;
  for (int i = 0; i < 60; i += 2) {
    EXPECT_EQ(at(i, stalls(i)).action, MemoryAction::Hold) << i;
  }
}

TEST_F(DecisionTest, WaitsLongerAfterEachMistake) {
  // A neighbour that takes whatever the cache gives back, so that growing is always wrong.
  double now = 0;
  double waited = 0, previous = 0;
  at(now, machine(0));
  for (int round = 0; round < 8; ++round) {
    const double start = now;
    while (at(now, machine(4 * kGiB)).action != MemoryAction::Grow) now += 0.5;
    waited = now - start;
    EXPECT_GE(waited, previous);
    previous = waited;
    now += 0.5;
    ASSERT_EQ(at(now, machine(0)).action, MemoryAction::Shrink);
  }
  EXPECT_NEAR(waited, policy_.max_calm_seconds, 1);
}

TEST_F(DecisionTest, DoesNotSwing) {
  // The machine has 10 GiB for us and a neighbour of constant size: one answer, then silence.
  const std::uint64_t total = 10 * kGiB, neighbour = 3 * kGiB;
  int changes = 0;
  for (double now = 0; now < 600; now += 0.1) {
    const std::uint64_t used = neighbour + cache_.current;
    changes += at(now, machine(used < total ? total - used : 0)).action != MemoryAction::Hold;
  }
  EXPECT_LE(changes, 8);
  EXPECT_GE(cache_.current, total - neighbour - policy_.machine_reserve - 16 * kMiB);
  EXPECT_LE(cache_.current, total - neighbour - policy_.machine_reserve / 2);
}

TEST_F(DecisionTest, CountersThatGoBackAreNoStall) {
  at(0, stalls(100));
  EXPECT_EQ(at(2, stalls(1)).action, MemoryAction::Hold);
}

TEST(MemoryPressureMonitorTest, ReadsAtMostEveryTenthOfASecond) {
  const FakeRoot root;
  root.write("/proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
  PressurePolicy policy;
  policy.machine_reserve = kGiB;
  MemoryPressureMonitor monitor(policy, root.path());
  const CacheSize cache{.current = 2 * kGiB, .floor = 0, .ceiling = 2 * kGiB};
  EXPECT_EQ(monitor.poll(5, cache).action, MemoryAction::Hold);
  EXPECT_EQ(monitor.last_sample().available, 4 * kGiB);
  root.write("/proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 0 kB\n");
  EXPECT_EQ(monitor.poll(5.05, cache).action, MemoryAction::Hold);
  const MemoryDecision decision = monitor.poll(5.11, cache);
  EXPECT_EQ(decision.action, MemoryAction::Shrink);
  EXPECT_EQ(decision.bytes, 768 * kMiB);
}

TEST(MemoryPressureMonitorTest, SeesTheGroup) {
  const FakeRoot root;
  root.unified("/");
  root.write("/sys/fs/cgroup/memory.max", "4294967296\n");
  root.write("/sys/fs/cgroup/memory.current", "4194304000\n");
  root.write("/sys/fs/cgroup/memory.pressure", "some avg10=0 avg60=0 avg300=0 total=7\n");
  MemoryPressureMonitor monitor(default_pressure_policy(read_memory_limits(root.path())),
                                root.path());
  const CacheSize cache{.current = 2 * kGiB, .floor = 0, .ceiling = 2 * kGiB};
  EXPECT_EQ(monitor.poll(0, cache).cause, MemoryCause::Cgroup);
  EXPECT_EQ(monitor.last_sample().cgroup_left, 4294967296 - 4194304000);
  EXPECT_EQ(monitor.last_sample().some_us, 7);
}

TEST(MemoryPressureMonitorTest, WithoutAnyFileItHolds) {
  const FakeRoot root;
  MemoryPressureMonitor monitor({}, root.path());
  EXPECT_EQ(monitor.poll(0, {kGiB, 0, kGiB}).action, MemoryAction::Hold);
}

TEST(MemoryPressureMonitorTest, ThisMachine) {
  MemoryPressureMonitor monitor(default_pressure_policy(read_memory_limits()));
  static_cast<void>(monitor.poll(0, {kGiB, 0, kGiB}));
  EXPECT_LT(monitor.last_sample().available, kNoLimit);
}

}  // namespace
}  // namespace moeflux::test
