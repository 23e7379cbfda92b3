// Least often used of late. Every use of an expert counts 1 and fades to half in `half_life`
// requests of its layer. Time passes for an expert when its own layer is asked: a clock common to
// all layers would count the layer to come as the stalest, and plain recency does just that.
//
// The half-life follows the size of the cache: twice the time in which as many experts are asked
// for as it has slots. Shorter and it is LRU; longer and yesterday's favourites stay (LEARNED 4).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "experts/eviction_policies.h"
#include "experts/layer_offers.h"
#include "experts/request_rate.h"

namespace moeflux {
namespace {

class Frequency final : public EvictionPolicy {
 public:
  Frequency(const ExpertIds& experts, std::size_t n_slots)
      : experts_(experts),
        rate_(experts, n_slots),
        time_(static_cast<std::size_t>(experts.n_layers()), 0),
        scores_(static_cast<std::size_t>(experts.n_total()), kNever),
        offers_(experts) {}

  void begin_request(int layer) override {
    layer_ = layer;
    rate_.begin_request(layer);
    time(layer) += 1 / half_life();
  }

  // Kept as log2 of the faded count plus the time of the layer, in half-lives, so that it fades
  // without being touched and never overflows.
  void use(int id) override {
    rate_.use();
    const double now = time(experts_.layer(id));
    double& score = scores_[static_cast<std::size_t>(id)];
    const double larger = std::max(score, now);
    score = larger + std::log2(1 + std::exp2(std::min(score, now) - larger));
  }

  void offer(int id) override { offers_.insert(id, scores_[static_cast<std::size_t>(id)]); }
  void withdraw(int id) override { offers_.remove(id); }

  int evict() override {
    const double token = 1 / half_life();
    return offers_.take_least([&](int layer) {
      return -time(layer) - token * layer_distance(layer, layer_, experts_.n_layers());
    });
  }

  void remember(int id, double rate) override {
    if (rate > 0) scores_[static_cast<std::size_t>(id)] = std::log2(rate * half_life() / 0.6931);
  }

  void set_slots(std::size_t n_slots) override { rate_.set_slots(n_slots); }

 private:
  // Finite: infinities cannot be compared across layers.
  static constexpr double kNever = -1e6;

  double half_life() const { return std::max(1.0, 2 * rate_.cache_tokens()); }
  double& time(int layer) { return time_[static_cast<std::size_t>(layer)]; }

  ExpertIds experts_;
  RequestRate rate_;
  std::vector<double> time_;    // [n_layers], in half-lives
  std::vector<double> scores_;  // [n_experts]
  LayerOffers offers_;
  int layer_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_frequency(const ExpertIds& experts, std::size_t n_slots) {
  return std::make_unique<Frequency>(experts, n_slots);
}

}  // namespace moeflux
