// What launchers share: shapes of grids, and parameters without stray bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backends/cuda/program.h"

namespace moeflux::cuda {

inline unsigned count(std::int64_t n) {
  return static_cast<unsigned>(n);
}
// Pieces of `size` that n things make.
inline unsigned pieces(std::int64_t n, std::int64_t size) {
  return static_cast<unsigned>((n + size - 1) / size);
}
// A thread for each of n values as far as a block has them: whole warps.
inline unsigned threads_for(std::int64_t n, std::int64_t most) {
  return static_cast<unsigned>(std::min(most, (n + 31) / 32 * 32));
}

// Parameters whose bytes between members are zero, too: lists of operations are compared by bytes.
template <class Params>
Params zeroed() {
  Params params;
  std::memset(static_cast<void*>(&params), 0, sizeof params);
  return params;
}

}  // namespace moeflux::cuda
