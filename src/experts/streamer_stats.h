// What streaming did, by bank and in all: counters that only grow.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace moeflux {

inline std::uint64_t nanoseconds_since(std::chrono::steady_clock::time_point start) {
  const auto elapsed = std::chrono::steady_clock::now() - start;
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
}

// Times by powers of two: bucket i has those below bound_ns(i) that no earlier one has, the last
// one all others.
struct TimeHistogram {
  static constexpr std::size_t kBuckets = 20;
  static constexpr std::uint64_t bound_ns(std::size_t bucket) {
    return std::uint64_t{16'384} << bucket;  // 16 microseconds, ..., 4 seconds
  }

  std::array<std::uint64_t, kBuckets> counts = {};
  std::uint64_t sum_ns = 0;

  void add(std::uint64_t ns) {
    const auto bucket = static_cast<std::size_t>(std::bit_width(ns / bound_ns(0)));
    ++counts[bucket < kBuckets ? bucket : kBuckets - 1];
    sum_ns += ns;
  }
  std::uint64_t count() const {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  }
  TimeHistogram& operator-=(const TimeHistogram& before) {
    for (std::size_t i = 0; i < kBuckets; ++i) counts[i] -= before.counts[i];
    sum_ns -= before.sum_ns;
    return *this;
  }
};

struct BankStats {
  std::uint64_t hits = 0;    // experts asked for that were in memory, or on their way because they
                             // had been prefetched
  std::uint64_t misses = 0;  // that had to be read for the request
  std::uint64_t bytes_missed = 0;
  std::uint64_t wait_ns = 0;  // the caller stood still for a read

  BankStats& operator+=(const BankStats& other) {
    hits += other.hits;
    misses += other.misses;
    bytes_missed += other.bytes_missed;
    wait_ns += other.wait_ns;
    return *this;
  }
};

struct StreamerStats {
  std::vector<BankStats> banks;
  std::uint64_t steps = 0;
  std::uint64_t tokens = 0;
  std::uint64_t bytes_read = 0;       // for requests, prefetches and warming
  std::uint64_t prefetched = 0;       // experts read because prefetch() named them
  std::uint64_t prefetches_used = 0;  // of these, asked for before they were evicted
  std::uint64_t warmed = 0;
  std::uint64_t check_ns = 0;  // verifying checksums
  std::uint64_t busy_ns = 0;   // some read was on its way, until it was noticed to have ended
  // Of experts that had to be read for a request, from asking the drive to having them. While the
  // caller computes, bytes may lie there for a while before it looks.
  TimeHistogram read_time;

  BankStats total() const {
    BankStats sum;
    for (const BankStats& bank : banks) sum += bank;
    return sum;
  }
};

// Of each expert, by its number: how often it was hit and missed since somebody began to count.
struct ExpertUses {
  std::vector<std::uint32_t> hits, misses;

  explicit ExpertUses(std::size_t n_experts = 0) : hits(n_experts), misses(n_experts) {}
  void clear() {
    std::fill(hits.begin(), hits.end(), 0);
    std::fill(misses.begin(), misses.end(), 0);
  }
};

}  // namespace moeflux
