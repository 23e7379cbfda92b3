// Whether memory gets short while a model runs, and what the expert cache should do about it.
//
// Three signs count: memory of the machine running out, a control group getting full, and tasks
// that stall because they wait for memory (pressure stall information, PSI). The first two say how
// much is missing, so the cache gives exactly that back at once. Stalls say only that something is
// wrong: the cache gives back a small part again and again while they last.
//
// Growing back is slow and hesitates longer after each time it turned out to be wrong. Between the
// level below which the cache shrinks and the one above which it grows lies half a reserve in which
// nothing happens, so it does not swing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/memory_limits.h"

namespace moeflux {

// One line of a PSI file: the share of time in percent, and microseconds in all.
struct PressureLine {
  double avg10 = 0;
  double avg60 = 0;
  double avg300 = 0;
  std::uint64_t total_us = 0;
};
struct MemoryPressure {
  PressureLine some;  // at least one task waited
  PressureLine full;  // all of them did
};

// Nothing when the text has no "some" line. One without "full" has zeros for it.
std::optional<MemoryPressure> parse_memory_pressure(std::string_view text);

// Of our own control group where that has it (version 2), else of the machine. Nothing when the
// kernel does not measure it.
std::optional<MemoryPressure> read_memory_pressure(const std::string& root = "/");

struct MemorySample {
  double seconds = 0;                      // of any clock that does not go back
  std::uint64_t available = kNoLimit;      // of the machine
  std::uint64_t cgroup_left = kNoLimit;    // until a group is full
  std::optional<std::uint64_t> some_us{};  // stalls so far, both counted since the start of time
  std::optional<std::uint64_t> full_us{};
};

struct PressurePolicy {
  // What should stay free. The cache shrinks when less than half of a reserve is left, to have
  // three quarters of it again, and grows only where all of it stays free.
  std::uint64_t machine_reserve = 0;
  std::uint64_t cgroup_reserve = 0;
  // Shares of time that are too much. The kernel adds up stalls every two seconds, so a shorter
  // window would see nothing and then a peak.
  double some_share = 0.10;
  double full_share = 0.02;
  double window_seconds = 2.0;
  // Stalls count only while less than this is left: with more, what stalls is something else, such
  // as a neighbour in a group of its own that is full.
  std::uint64_t machine_stall_below = kNoLimit;
  std::uint64_t cgroup_stall_below = kNoLimit;
  // Without a number that says how much: a sixteenth of the cache.
  int stall_divisor = 16;
  // Growing: not before so long after shrinking, then a step a second.
  double calm_seconds = 10;
  double max_calm_seconds = 320;
  double grow_interval_seconds = 1;
  int grow_divisor = 32;  // of the distance from floor to ceiling
};

// The numbers that go with the limits of this machine.
PressurePolicy default_pressure_policy(const MemoryLimits& limits);

struct CacheSize {
  std::uint64_t current = 0;
  std::uint64_t floor = 0;    // never asked to shrink below
  std::uint64_t ceiling = 0;  // never asked to grow above
};

enum class MemoryAction { Hold, Shrink, Grow };
enum class MemoryCause { None, Machine, Cgroup, Stalls };

struct MemoryDecision {
  MemoryAction action = MemoryAction::Hold;
  std::uint64_t bytes = 0;  // to shrink or grow by; 0 for Hold
  MemoryCause cause = MemoryCause::None;
};

// What decide() remembers from one sample to the next.
struct PressureState {
  bool started = false;
  double window_start = 0;
  std::uint64_t window_some_us = 0;
  std::uint64_t window_full_us = 0;
  bool stalling = false;  // in the last whole window
  double last_shrink = 0;
  double last_grow = 0;
  double calm_seconds = 0;  // to wait now; doubles when growing turns out to be a mistake
};

// Depends on nothing but its arguments.
MemoryDecision decide(const PressurePolicy& policy, PressureState& state,
                      const MemorySample& sample, const CacheSize& cache);

// Samples this machine now and then. Call poll() between tokens: most calls only compare two
// numbers; one every tenth of a second reads some files of the kernel. Used by one thread.
class MemoryPressureMonitor {
 public:
  static constexpr double kIntervalSeconds = 0.1;

  explicit MemoryPressureMonitor(const PressurePolicy& policy, std::string root = "/");

  // `now` in seconds of a clock that does not go back.
  MemoryDecision poll(double now, const CacheSize& cache);
  const MemorySample& last_sample() const { return sample_; }

 private:
  void take_sample(double now);

  PressurePolicy policy_;
  std::string meminfo_path_;
  std::string pressure_path_;
  Cgroup cgroup_;
  PressureState state_;
  MemorySample sample_;
  bool sampled_ = false;
};

}  // namespace moeflux
