// Measures an engine: prompts of random tokens and random single tokens, as many times as asked,
// with the speed of memory and of the drive measured in between, so that every figure has its bound
// from the same minute. Random tokens are the worst case of a cache: no topic, no repetition.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/activity.h"
#include "engine/engine.h"

namespace moeflux {

// What measuring the machine takes: EngineOptions::other_bytes of an engine to be measured.
inline constexpr std::uint64_t kMeasuringBytes = std::uint64_t{64} << 20;

struct BenchOptions {
  std::vector<std::int64_t> n_prompt{512};  // tokens of a prompt; 0 is skipped
  std::vector<std::int64_t> n_generate{128};
  int repetitions = 5;
  std::int64_t n_warm_up = 64;  // tokens before the first repetition; the cache fills meanwhile
  std::uint64_t seed = 1;
  bool measure_machine = true;
  std::function<void(const std::string& what)> progress = {};  // may throw to stop
};

struct BenchRun {
  double seconds = 0;
  Activity activity;
  double memory_speed = 0;  // bytes per second, meanwhile; 0: not measured
  double disk_speed = 0;
};

struct BenchTest {
  std::string name;  // "pp512", "tg128"
  bool one_by_one = false;
  std::int64_t n_tokens = 0;
  std::vector<BenchRun> runs;

  double median_seconds() const;
  double tokens_per_second() const { return static_cast<double>(n_tokens) / median_seconds(); }
  double spread() const;  // (slowest - fastest) / median of the times
};

// What one token reads while an answer is made, at the middle of the test.
struct TokenTraffic {
  double weights = 0;  // dense and routed experts
  double state = 0;    // recurrent state read and written, keys and values read
  double total() const { return weights + state; }
};
TokenTraffic token_traffic(const Engine& engine, std::int64_t length);

// Medians over the runs of a test of single tokens, per token, and how they compare with what the
// machine allows.
struct BenchBounds {
  double seconds = 0;
  double memory_seconds = 0;  // traffic over the speed of memory
  double disk_seconds = 0;    // bytes missed over the speed of the drive
  double bytes_missed = 0;    // what had to be read: misses, and prefetches that were right
  double bytes_read = 0;      // wrong prefetches included
  double hit_rate = 0;        // without what was prefetched
  double wait_seconds = 0;
  double drive_busy_seconds = 0;  // as the engine saw it
  double compute_seconds = 0;
};
BenchBounds bounds_of(const Engine& engine, const BenchTest& test);

// Where the time of a token goes, as the median over the runs; the longest first. What is no
// operation of the backend is "drive_wait" and "other".
struct TimeShare {
  std::string what;
  double seconds = 0;
};
std::vector<TimeShare> time_shares(const BenchTest& test);

std::vector<BenchTest> run_bench(Engine& engine, const BenchOptions& options);

}  // namespace moeflux
