#include "experts/replay.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"
#include "experts/expert_heap.h"

namespace moeflux {
namespace {

class Belady final : public EvictionPolicy {
 public:
  explicit Belady(const Trace& trace)
      : trace_(trace),
        next_of_use_(trace.n_uses()),
        next_(static_cast<std::size_t>(trace.expert_ids().n_total()), kNever),
        offers_(trace.expert_ids().n_total()) {
    std::size_t at = trace.n_uses();
    for (std::size_t r = trace.n_requests(); r-- > 0;) {
      const Trace::Request request = trace.request(r);
      at -= request.experts.size();
      for (std::size_t i = 0; i < request.experts.size(); ++i) {
        double& next = next_[static_cast<std::size_t>(request.experts[i])];
        next_of_use_[at + i] = next;
        next = static_cast<double>(r);
      }
    }
    // next_ is now the first use of each expert, which is right before the first request.
  }

  void begin_request(int) override {
    for (const int expert : trace_.request(n_requests_++).experts) {
      next_[static_cast<std::size_t>(expert)] = next_of_use_[n_uses_++];
    }
  }
  void use(int) override {}
  void offer(int expert) override {
    offers_.insert(expert, -next_[static_cast<std::size_t>(expert)]);
  }
  void withdraw(int expert) override { offers_.remove(expert); }
  int evict() override {
    if (offers_.empty()) return -1;
    const int expert = offers_.top();
    offers_.remove(expert);
    return expert;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  const Trace& trace_;
  std::vector<double> next_of_use_;  // the request that asks for the same expert again
  std::vector<double> next_;         // [n_experts], seen from the request that is replayed
  ExpertHeap offers_;
  std::size_t n_requests_ = 0, n_uses_ = 0;
};

// The cache without its memory.
class Simulation {
 public:
  Simulation(const Trace& trace, EvictionPolicy& policy, const ReplayOptions& options)
      : policy_(policy),
        n_free_(options.n_slots),
        cached_(static_cast<std::size_t>(trace.expert_ids().n_total()), false) {
    for (const int expert : options.warm) {
      if (n_free_ == 0) break;
      if (cached(expert)) continue;
      --n_free_;
      cached(expert) = true;
      policy_.offer(expert);
    }
  }

  // Returns how many of its experts were missing.
  std::size_t ask(const Trace::Request& request) {
    policy_.begin_request(request.layer);
    held_.clear();
    missing_.clear();
    for (const int expert : request.experts) {
      if (cached(expert)) {
        policy_.withdraw(expert);
        policy_.use(expert);
        held_.push_back(expert);
      } else {
        missing_.push_back(expert);
      }
    }
    for (const int expert : missing_) {
      make_room();
      policy_.use(expert);
      cached(expert) = true;
      held_.push_back(expert);
    }
    release();
    return missing_.size();
  }

 private:
  std::vector<bool>::reference cached(int expert) {
    return cached_[static_cast<std::size_t>(expert)];
  }

  void make_room() {
    if (n_free_ > 0) {
      --n_free_;
      return;
    }
    int victim = policy_.evict();
    if (victim < 0) {
      release();
      victim = policy_.evict();
    }
    cached(victim) = false;
  }

  void release() {
    for (const int expert : held_) policy_.offer(expert);
    held_.clear();
  }

  EvictionPolicy& policy_;
  std::size_t n_free_;
  std::vector<bool> cached_;
  std::vector<int> held_, missing_;
};

}  // namespace

double ReplayResult::hit_rate() const {
  const std::uint64_t n = hits + misses;
  return n > 0 ? static_cast<double>(hits) / static_cast<double>(n) : 0;
}

double ReplayResult::bytes_per_token() const {
  return n_tokens > 0 ? static_cast<double>(bytes_missed) / static_cast<double>(n_tokens) : 0;
}

double ReplayResult::tokens_per_second(double bytes_per_second) const {
  const double bytes = bytes_per_token();
  return bytes > 0 ? bytes_per_second / bytes : std::numeric_limits<double>::infinity();
}

ReplayResult replay(const Trace& trace, EvictionPolicy& policy, const ReplayOptions& options) {
  MOEFLUX_ASSERT(options.n_slots > 0);
  Simulation simulation(trace, policy, options);
  ReplayResult result;
  std::int64_t n_seen = 0;
  for (const Trace::Step& step : trace.steps()) {
    const bool counts = n_seen >= options.skip_tokens;
    n_seen += step.n_tokens;
    if (counts) result.n_tokens += step.n_tokens;
    for (std::size_t i = 0; i < step.n_requests; ++i) {
      const Trace::Request request = trace.request(step.first_request + i);
      const std::size_t n_missed = simulation.ask(request);
      if (!counts) continue;
      result.hits += request.experts.size() - n_missed;
      result.misses += n_missed;
      result.bytes_missed += n_missed * trace.record_bytes(request.layer);
    }
  }
  return result;
}

std::unique_ptr<EvictionPolicy> make_belady(const Trace& trace) {
  return std::make_unique<Belady>(trace);
}

}  // namespace moeflux
