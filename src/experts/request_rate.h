// How many tokens' worth of experts a cache holds: its slots over the experts a token asks for,
// which is measured. Passes over many tokens ask for most experts of a layer and say nothing about
// that; they are left out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "experts/expert_ids.h"

namespace moeflux {

class RequestRate {
 public:
  RequestRate(const ExpertIds& experts, std::size_t n_slots)
      : n_experts_(experts.n_experts()),
        n_layers_(static_cast<double>(experts.n_layers())),
        n_slots_(static_cast<double>(n_slots)),
        per_request_(n_layers_ > 0 ? experts.n_total() / n_layers_ / kGuess : 1) {}

  void begin_request(int layer) {
    if (n_uses_ > 0 && is_small(n_uses_)) per_request_ += (n_uses_ - per_request_) / kMemory;
    layer_ = layer;
    n_uses_ = 0;
  }
  void use() { ++n_uses_; }
  void set_slots(std::size_t n_slots) { n_slots_ = static_cast<double>(n_slots); }

  // Whether so many experts may be the request of one token or a few.
  bool is_small(int n_uses) const {
    return n_uses * 4 <= std::max(4, n_experts_[static_cast<std::size_t>(layer_)]);
  }
  double cache_tokens() const { return n_slots_ / (std::max(per_request_, 1.0) * n_layers_); }

 private:
  static constexpr double kGuess = 32;  // a token asks for about so small a part of a layer
  static constexpr double kMemory = 256;

  std::vector<int> n_experts_;
  double n_layers_, n_slots_;
  double per_request_;  // average
  int layer_ = 0;
  int n_uses_ = 0;  // of the request that is under way
};

}  // namespace moeflux
