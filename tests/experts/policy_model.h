// A cache in a few lines, for driving a policy the way the real one does.
#pragma once

#include <algorithm>
#include <set>
#include <vector>

#include "experts/eviction.h"

namespace moeflux::test {

class PolicyModel {
 public:
  PolicyModel(EvictionPolicy& policy, std::size_t n_slots) : policy_(policy), n_slots_(n_slots) {}

  // Asks for the experts and lets go of them. Returns those that were evicted, in order.
  std::vector<int> ask(int layer, const std::vector<int>& ids) {
    std::vector<int> evicted;
    policy_.begin_request(layer);
    for (const int id : ids) {
      if (cached_.count(id) == 0) continue;
      policy_.withdraw(id);
      policy_.use(id);
    }
    for (const int id : ids) {
      if (cached_.count(id) != 0) continue;
      if (cached_.size() == n_slots_) {
        evicted.push_back(policy_.evict());
        cached_.erase(evicted.back());
      }
      policy_.use(id);
      cached_.insert(id);
    }
    for (const int id : ids) policy_.offer(id);
    return evicted;
  }
  const std::set<int>& cached() const { return cached_; }

 private:
  EvictionPolicy& policy_;
  std::size_t n_slots_;
  std::set<int> cached_;
};

}  // namespace moeflux::test
