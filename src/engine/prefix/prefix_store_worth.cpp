#include "engine/prefix/prefix_store_worth.h"

namespace moeflux {

bool is_worth_storing(const PrefixWorth& worth, const PrefixGain& gain) {
  const std::int64_t n_new = gain.n_tokens - gain.n_stored;
  if (gain.n_tokens < worth.min_tokens || n_new < worth.min_new) return false;
  if (gain.seconds_per_token <= 0) return true;
  return static_cast<double>(gain.n_tokens) * gain.seconds_per_token >
         static_cast<double>(gain.bytes) * worth.seconds_per_byte;
}

}  // namespace moeflux
