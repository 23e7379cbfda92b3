#include "experts/eviction.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "experts/expert_heap.h"

namespace moeflux {
namespace {

// How many tokens' worth of experts a cache holds: its slots over the experts a token asks for,
// which is measured. Passes over many tokens ask for most experts of a layer and say nothing about
// that; they are left out.
class RequestRate {
 public:
  RequestRate(const ExpertIds& experts, std::size_t n_slots)
      : n_experts_(experts.n_experts()),
        n_layers_(static_cast<double>(experts.n_layers())),
        n_slots_(static_cast<double>(n_slots)),
        per_request_(n_layers_ > 0 ? experts.n_total() / n_layers_ / kAssumed : 1) {}

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
  static constexpr double kAssumed = 32;  // a token asks for about so small a part of a layer
  static constexpr double kMemory = 256;

  std::vector<int> n_experts_;
  double n_layers_, n_slots_;
  double per_request_;  // average
  int layer_ = 0;
  int n_uses_ = 0;  // of the request that is under way
};

// ---- least recently used

// Least recently used: the experts on offer in a list through arrays, oldest first.
class Lru final : public EvictionPolicy {
 public:
  Lru(const ExpertIds& experts, std::size_t /*n_slots*/)
      : links_(static_cast<std::size_t>(experts.n_total()) + 1), end_(experts.n_total()) {
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

// ---- least often used of late

// Least often used of late. Every use of an expert counts 1 and fades to half in `half_life`
// requests of its layer. Time passes for an expert when its own layer is asked: a clock common to
// all layers would count the layer to come as the stalest, and plain recency does just that.
//
// The half-life follows the size of the cache: twice the time in which as many experts are asked
// for as it has slots. Shorter and it is LRU; longer and yesterday's favourites stay (LEARNED 4).
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

// ---- learned

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

// ---- the list

template <class Policy>
std::unique_ptr<EvictionPolicy> make(const ExpertIds& experts, std::size_t n_slots) {
  return std::make_unique<Policy>(experts, n_slots);
}

using Maker = std::unique_ptr<EvictionPolicy> (*)(const ExpertIds&, std::size_t);

struct Entry {
  PolicyInfo info;
  Maker make;
};

constexpr std::array kPolicies{
    Entry{{"lru", "least recently used"}, make<Lru>},
    Entry{{"frequency", "least often used of late; layers just passed before layers to come"},
          make<Frequency>},
    Entry{{"learned", "longest until its next use, as learned from the requests so far (default)"},
          make<Learned>},
};

}  // namespace

const std::vector<PolicyInfo>& policy_list() {
  static const std::vector<PolicyInfo> list = [] {
    std::vector<PolicyInfo> all;
    for (const Entry& entry : kPolicies) all.push_back(entry.info);
    return all;
  }();
  return list;
}

std::string policy_names() {
  std::string names;
  for (const Entry& entry : kPolicies) {
    if (!names.empty()) names += ", ";
    names += entry.info.name;
  }
  return names;
}

std::unique_ptr<EvictionPolicy> make_policy(std::string_view name, const ExpertIds& experts,
                                            std::size_t n_slots) {
  for (const Entry& entry : kPolicies) {
    if (entry.info.name == name) return entry.make(experts, n_slots);
  }
  fail(Errc::BadInput, "unknown eviction policy \"{}\" (known: {})", name, policy_names());
}

}  // namespace moeflux
