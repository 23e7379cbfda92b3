// Which cached expert to evict next.
//
// A policy is a pure object: no I/O, no clock (time is the number of requests), deterministic. The
// cache tells it what is asked for and which experts it may evict; the same objects run in the
// engine and in the replay of recorded traces (replay.h). Experts are numbered through (ExpertIds).
// No call allocates. A call costs O(1) or O(log n), evict() at most O(layers), and begin_request()
// at most O(experts of one layer), some 3 us for 512.
//
// The life of an expert: use() whenever a layer asks for it; offer() when it lies in the cache
// unpinned; withdraw() when it is pinned again; evict() to make room. An expert on offer is never
// used: it is withdrawn first.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "experts/expert_ids.h"

namespace moeflux {

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // A layer is about to ask for its experts.
  virtual void begin_request(int layer) = 0;
  // It asks for this one, be it in the cache or not; once in a request.
  virtual void use(int expert) = 0;

  virtual void offer(int expert) = 0;
  virtual void withdraw(int expert) = 0;
  // Takes back the offer that is worth least and returns that expert; -1 when none is on offer.
  virtual int evict() = 0;

  // What is known of an expert from earlier runs: the share of its layer's requests that asked for
  // it, from 0 to 1. Before the first request and the first offer.
  virtual void remember(int /*expert*/, double /*rate*/) {}
  // The cache can hold more or fewer experts from now on.
  virtual void set_slots(std::size_t /*n_slots*/) {}
};

struct PolicyInfo {
  std::string_view name;
  std::string_view meaning;  // for help, half a line
};
const std::vector<PolicyInfo>& policy_list();
std::string policy_names();  // "lru, frequency, ...", for messages

inline constexpr std::string_view kDefaultPolicy = "learned";

// n_slots: experts the cache can hold. Throws Error(BadInput) for an unknown name.
std::unique_ptr<EvictionPolicy> make_policy(std::string_view name, const ExpertIds& experts,
                                            std::size_t n_slots);

}  // namespace moeflux
