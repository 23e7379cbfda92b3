// What a cache would have done: a trace replayed against a policy, without a model or a drive. Many
// sizes and policies are tried in the time one token takes to compute.
//
// The experts of a request that are in the cache are pinned first; then each missing one takes a
// slot, in place of an expert that the policy evicts. When all slots are pinned by the request
// itself, those it has had its turn with are evicted first, as the streamer does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "experts/eviction.h"
#include "experts/trace.h"

namespace moeflux {

struct ReplayOptions {
  std::size_t n_slots = 0;       // at least 1
  std::int64_t skip_tokens = 0;  // these fill the cache, but are not counted
  // Experts that lie in the cache at the start, the most useful first; what does not fit is left.
  std::span<const int> warm = {};
};

struct ReplayResult {
  std::int64_t n_tokens = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t bytes_missed = 0;

  double hit_rate() const;         // 0 to 1; 0 when nothing was asked for
  double bytes_per_token() const;  // to be read from the drive
  // The speed at which reading alone would allow tokens; infinity when nothing is read.
  double tokens_per_second(double bytes_per_second) const;
};

ReplayResult replay(const Trace& trace, EvictionPolicy& policy, const ReplayOptions& options);

// The bound for every policy: it knows the trace and evicts the expert whose next use is farthest
// away (Belady's MIN). Exact while n_slots holds the largest request. `trace` must outlive it; good
// for one replay of that trace from its beginning.
std::unique_ptr<EvictionPolicy> make_belady(const Trace& trace);

}  // namespace moeflux
