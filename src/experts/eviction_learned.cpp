// Learns what an expert is worth keeping for.
//
// Two things are known of an expert: its age (requests of its layer since it was used) and its rate
// (uses per request of its layer, faded). How well each foretells the next use differs from model
// to model and from text to text, so it is measured: for each pair of age and rate, `worth` is the
// expected discount of the next use, E[gamma^t] with t in tokens, estimated from every request by
// temporal differences:
// worth(before) moves towards 1 if the expert is used now, else towards gamma * worth(after).
// One small table serves all layers. The discount fits the cache: what lies beyond twice its
// turnover cannot be kept anyway.
//
// After each request the experts of that one layer get older: a loop over some hundred entries, two
// or three microseconds (LEARNED 5).
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "experts/eviction_policies.h"
#include "experts/layer_offers.h"
#include "experts/request_rate.h"

namespace moeflux {
namespace {

constexpr std::array kAgeBounds{1,  2,  3,  4,  5,   6,   8,   12,  16,  24,
                                32, 48, 64, 96, 128, 192, 256, 384, 512, 1024};
constexpr int kAges = static_cast<int>(kAgeBounds.size()) + 1, kRates = 12;
constexpr int kOldest = kAgeBounds.back();  // ages from here on are alike
constexpr float kRateHalfLife = 32;         // tokens
constexpr float kMostObservations = 3000;   // observations a worth rests on
// Among experts of equal worth the older one goes, by a margin that decides nothing else.
constexpr double kOlder = 1e-6;

int rate_class(float rate) {  // powers of two; 0: hardly ever
  const auto exponent = static_cast<int>(std::bit_cast<std::uint32_t>(rate) >> 23) - 127;
  return std::clamp(exponent + kRates - 1, 0, kRates - 1);
}

class Worth {
 public:
  Worth() {
    for (int age = 0; age < kAges; ++age) {
      for (int rate = 0; rate < kRates; ++rate) {  // a mild opinion until there is evidence
        const int state = age * kRates + rate;
        at(state).worth = 0.3F / static_cast<float>(1 + age) + 0.02F * static_cast<float>(rate);
        logs_[static_cast<std::size_t>(state)] = std::log2(at(state).worth);
      }
    }
  }

  float operator[](int state) const { return table_[static_cast<std::size_t>(state)].worth; }
  void observe(int state, float x) {
    Entry& entry = at(state);
    entry.sum += x;
    entry.count += 1;
  }

  // Takes in what was observed since the last time.
  void learn() {
    for (std::size_t i = 0; i < table_.size(); ++i) {
      Entry& entry = table_[i];
      if (entry.count == 0) continue;
      entry.n = std::min(entry.n + entry.count, kMostObservations);
      const float step = std::min(1.0F, entry.count / entry.n);
      entry.worth += (entry.sum / entry.count - entry.worth) * step;
      entry.sum = entry.count = 0;
      logs_[i] = std::log2(std::max(entry.worth, 1e-9F));
    }
  }
  double log(int state) const { return logs_[static_cast<std::size_t>(state)]; }

 private:
  struct Entry {
    float worth = 0;
    float n = 4;               // observations it rests on
    float sum = 0, count = 0;  // of those since then
  };
  Entry& at(int state) { return table_[static_cast<std::size_t>(state)]; }

  std::array<Entry, kAges * kRates> table_;
  std::array<double, kAges * kRates> logs_;
};

class Learned final : public EvictionPolicy {
 public:
  Learned(const ExpertIds& experts, std::size_t n_slots)
      : experts_(experts),
        requests_(experts, n_slots),
        states_(static_cast<std::size_t>(experts.n_total())),
        offers_(experts) {
    for (int age = 0; age <= kOldest; ++age) {
      const auto* bound = std::upper_bound(kAgeBounds.begin(), kAgeBounds.end(), age);
      ages_[static_cast<std::size_t>(age)] = static_cast<std::uint8_t>(bound - kAgeBounds.begin());
    }
    for (Expert& expert : states_) classify(expert);
    follow_cache();
  }

  void begin_request(int layer) override {
    if (layer_ >= 0) end_request();
    if (layer <= layer_) follow_cache();  // the next token
    layer_ = layer;
    requests_.begin_request(layer);
  }
  void use(int id) override {
    requests_.use();
    ++n_uses_;
    at(id).used = true;
  }

  void offer(int id) override { offers_.insert(id, key(at(id))); }
  void withdraw(int id) override { offers_.remove(id); }
  int evict() override {
    return offers_.take_least([this](int layer) {
      const double tokens = layer_distance(layer, layer_, experts_.n_layers());
      return (layer == layer_ ? 1 : tokens) * log_gamma_;
    });
  }

  void remember(int id, double rate) override {
    at(id).rate = static_cast<float>(std::clamp(rate, 0.0, 1.0));
    classify(at(id));
  }
  void set_slots(std::size_t n_slots) override { requests_.set_slots(n_slots); }

 private:
  struct Expert {
    float rate = 0;
    std::uint16_t age = kOldest;
    std::uint16_t state = 0;
    bool used = false;  // in the request under way
  };

  Expert& at(int id) { return states_[static_cast<std::size_t>(id)]; }
  double key(const Expert& expert) const { return worth_.log(expert.state) - kOlder * expert.age; }
  void classify(Expert& expert) const {
    expert.state = static_cast<std::uint16_t>(ages_[expert.age] * kRates + rate_class(expert.rate));
  }

  // The layer has said which of its experts it needs: all of them get older.
  void end_request() {
    const bool telling = n_uses_ > 0 && requests_.is_small(n_uses_);
    n_uses_ = 0;
    const int first = experts_.id(layer_, 0), n = experts_.n_experts(layer_);
    for (int id = first; id < first + n; ++id) {
      Expert& expert = at(id);
      const int before = expert.state;
      const bool used = std::exchange(expert.used, false);
      expert.age = used ? 0 : static_cast<std::uint16_t>(std::min<int>(expert.age + 1, kOldest));
      expert.rate = expert.rate * fade_ + (used ? 1 - fade_ : 0);
      classify(expert);
      if (telling) worth_.observe(before, used ? 1 : gamma_ * worth_[expert.state]);
    }
    offers_.rekey(layer_, [&](int expert) { return key(at(first + expert)); });
  }

  void follow_cache() {
    gamma_ = static_cast<float>(1 - 1 / std::max(1.5, 2 * requests_.cache_tokens()));
    log_gamma_ = std::log2(gamma_);
    worth_.learn();
  }

  ExpertIds experts_;
  RequestRate requests_;
  std::array<std::uint8_t, kOldest + 1> ages_{};
  std::vector<Expert> states_;  // [n_experts]
  Worth worth_;
  LayerOffers offers_;
  const float fade_ = std::exp2(-1 / kRateHalfLife);
  float gamma_ = 0.5F;
  double log_gamma_ = -1;
  int layer_ = -1;
  int n_uses_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_learned(const ExpertIds& experts, std::size_t n_slots) {
  return std::make_unique<Learned>(experts, n_slots);
}

}  // namespace moeflux
