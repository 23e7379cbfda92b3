// What streaming did, by bank and in all: counters that only grow.
#pragma once

#include <cstdint>
#include <vector>

namespace moeflux {

struct BankStats {
  std::uint64_t hits = 0;    // experts asked for that were in memory, or on their way because they
                             // had been guessed
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
  std::uint64_t bytes_read = 0;    // for requests, guesses and warming
  std::uint64_t guessed = 0;       // experts read because a guess named them
  std::uint64_t guesses_used = 0;  // of these, asked for before they were given up
  std::uint64_t warmed = 0;
  std::uint64_t check_ns = 0;  // verifying checksums

  BankStats total() const {
    BankStats sum;
    for (const BankStats& bank : banks) sum += bank;
    return sum;
  }
};

}  // namespace moeflux
