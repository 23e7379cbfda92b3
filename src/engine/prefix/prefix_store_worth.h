// Whether a prefix is worth its files. Recurrent state takes the same bytes after ten tokens as
// after ten thousand, so what counts is how many tokens it saves reading again, against the time
// that its bytes take and the wear they cost.
#pragma once

#include <cstdint>

namespace moeflux {

struct PrefixWorth {
  // A prefix of which nothing is stored: a single short question is seldom continued.
  std::int64_t min_tokens = 64;
  // More than what is stored: a chat that has been continued will be again, but a few tokens are
  // soon read.
  std::int64_t min_new = 24;
  // To write and to read back, on a drive that does either at 2 GB/s. Reading the whole prefix
  // again must take longer.
  double seconds_per_byte = 1e-9;
};

struct PrefixGain {
  std::int64_t n_tokens = 0;     // of the prefix
  std::int64_t n_stored = 0;     // of them, those that need not be read even without it
  std::uint64_t bytes = 0;       // to write
  double seconds_per_token = 0;  // to read one; 0: not known
};

bool is_worth_storing(const PrefixWorth& worth, const PrefixGain& gain);

}  // namespace moeflux
