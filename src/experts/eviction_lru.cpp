// Least recently used: the experts on offer in a list through arrays, oldest first.
#include <vector>

#include "experts/eviction_policies.h"

namespace moeflux {
namespace {

class Lru final : public EvictionPolicy {
 public:
  explicit Lru(int n_experts) : links_(static_cast<std::size_t>(n_experts) + 1), end_(n_experts) {
    at(end_) = {end_, end_};
  }

  void begin_request(int) override {}
  void use(int) override {}

  void offer(int expert) override {  // released last is used last
    const int before = at(end_).before;
    at(expert) = {before, end_};
    at(before).after = expert;
    at(end_).before = expert;
  }
  void withdraw(int expert) override {
    const Link link = at(expert);
    at(link.before).after = link.after;
    at(link.after).before = link.before;
  }
  int evict() override {
    const int oldest = at(end_).after;
    if (oldest == end_) return -1;
    withdraw(oldest);
    return oldest;
  }

 private:
  struct Link {
    int before = -1, after = -1;
  };
  Link& at(int expert) { return links_[static_cast<std::size_t>(expert)]; }

  std::vector<Link> links_;  // [n_experts + 1], the last closes the ring
  int end_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru(const ExpertIds& experts, std::size_t /*n_slots*/) {
  return std::make_unique<Lru>(experts.n_total());
}

}  // namespace moeflux
