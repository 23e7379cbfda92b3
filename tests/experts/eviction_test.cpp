#include "experts/eviction.h"

#include <set>

#include <gtest/gtest.h>

#include "experts/policy_model.h"
#include "support/expect_error.h"
#include "support/random.h"

namespace moeflux::test {
namespace {

using Ids = std::vector<int>;

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const PolicyInfo& policy : policy_list()) all.emplace_back(policy.name);
  return all;
}

class EveryPolicy : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicy, testing::ValuesIn(names()),
                         [](const auto& each) { return each.param; });

TEST(EvictionTest, ListsItsPolicies) {
  EXPECT_EQ(policy_names(), "lru, frequency, learned");
  EXPECT_NO_THROW(make_policy(kDefaultPolicy, ExpertIds({4, 4}), 2));
  expect_error(Errc::BadInput, {"\"mru\"", "lru, frequency"},
               [] { make_policy("mru", ExpertIds({4}), 2); });
}

TEST(EvictionTest, LruGivesUpWhatWasReleasedFirst) {
  const auto policy = make_policy("lru", ExpertIds({8}), 3);
  PolicyModel cache(*policy, 3);
  EXPECT_EQ(cache.ask(0, {0, 1, 2}), Ids{});
  EXPECT_EQ(cache.ask(0, {0}), Ids{});
  EXPECT_EQ(cache.ask(0, {3}), Ids{1});
  EXPECT_EQ(cache.ask(0, {2, 4}), Ids{0});
  EXPECT_EQ(cache.ask(0, {5, 6, 7}), (Ids{3, 2, 4}));
}

TEST(EvictionTest, FrequencyKeepsWhatIsUsedOftenOverWhatIsNew) {
  const auto policy = make_policy("frequency", ExpertIds({64}), 16);
  PolicyModel cache(*policy, 16);
  for (int i = 0; i < 10; ++i) cache.ask(0, {7});
  for (int id = 20; id < 60; ++id) cache.ask(0, {id});
  EXPECT_EQ(cache.cached().count(7), 1);
}

// 3 experts in use again and again, and a stream of others that never come back.
TEST(EvictionTest, LearnedFindsOutThatAScanIsWorthNothing) {
  const ExpertIds ids({256});
  for (const char* name : {"lru", "learned"}) {
    const auto policy = make_policy(name, ids, 16);
    PolicyModel cache(*policy, 16);
    int n_missed = 0;
    for (int i = 0; i < 2000; ++i) {
      if (i % 20 == 0) {
        for (const int id : {0, 1, 2}) n_missed += i > 1000 && cache.cached().count(id) == 0;
        cache.ask(0, {0, 1, 2});
      } else {
        cache.ask(0, {3 + i % 253});
      }
    }
    EXPECT_EQ(n_missed, std::string(name) == "lru" ? 147 : 0) << name;
  }
}

// All experts of all layers in turn, as in a long prompt: plain recency always gives up what comes
// next; who knows the order keeps a part.
TEST(EvictionTest, LayerOrderSavesAPartOfASweep) {
  const ExpertIds ids({8, 8, 8, 8});
  for (const char* name : {"lru", "frequency", "learned"}) {
    const auto policy = make_policy(name, ids, 16);
    PolicyModel cache(*policy, 16);
    int n_hits = 0;
    for (int pass = 0; pass < 20; ++pass) {
      for (int layer = 0; layer < 4; ++layer) {
        Ids all;
        for (int e = 0; e < 8; ++e) all.push_back(ids.id(layer, e));
        for (const int id : all) n_hits += pass >= 10 && cache.cached().count(id) != 0;
        cache.ask(layer, all);
      }
    }
    if (std::string(name) == "lru") {
      EXPECT_EQ(n_hits, 0);
    } else {
      EXPECT_GE(n_hits, 80) << name;  // of 320; no order of eviction can have more than 107
    }
  }
}

TEST_P(EveryPolicy, EvictsOnlyWhatIsOnOffer) {
  const ExpertIds ids({16, 16, 5});
  const auto policy = make_policy(GetParam(), ids, 20);
  EXPECT_EQ(policy->evict(), -1);
  Random random(7);
  std::set<int> offered, held;
  for (int i = 0; i < 20000; ++i) {
    if (i % 6 == 0) policy->begin_request(i / 6 % 3);
    const int id = static_cast<int>(random.integer(0, ids.n_total() - 1));
    if (held.count(id) != 0) {
      policy->offer(id);
      held.erase(id);
      offered.insert(id);
    } else if (offered.count(id) != 0) {
      policy->withdraw(id);
      if (random.integer(0, 3) > 0) policy->use(id);  // else it is pinned for another reason
      offered.erase(id);
      held.insert(id);
    } else {
      if (offered.size() + held.size() == 20) {
        const int victim = policy->evict();
        if (offered.empty()) {
          ASSERT_EQ(victim, -1);
          continue;
        }
        ASSERT_EQ(offered.count(victim), 1);
        offered.erase(victim);
      }
      policy->use(id);
      held.insert(id);
    }
  }
  for (; !offered.empty(); offered.erase(offered.find(policy->evict()))) {
  }
  EXPECT_EQ(policy->evict(), -1);
}

TEST_P(EveryPolicy, IsDeterministic) {
  const ExpertIds ids({32, 32});
  std::vector<Ids> runs;
  for (int run = 0; run < 2; ++run) {
    const auto policy = make_policy(GetParam(), ids, 10);
    PolicyModel cache(*policy, 10);
    Random random(3);
    Ids evicted;
    for (int i = 0; i < 1000; ++i) {
      const int layer = i % 2;
      const int first = static_cast<int>(random.integer(0, 30));
      const Ids some = cache.ask(layer, {ids.id(layer, first), ids.id(layer, first + 1)});
      evicted.insert(evicted.end(), some.begin(), some.end());
    }
    runs.push_back(evicted);
  }
  EXPECT_GT(runs[0].size(), 500);
  EXPECT_EQ(runs[0], runs[1]);
}

TEST_P(EveryPolicy, KeepsWhatItRemembers) {
  if (GetParam() == "lru") GTEST_SKIP() << "LRU has no use for it";
  const ExpertIds ids({32});
  const auto policy = make_policy(GetParam(), ids, 8);
  for (int e = 0; e < 8; ++e) policy->remember(e, e == 5 ? 0.9 : 0.01);
  for (int e = 0; e < 8; ++e) policy->offer(e);
  policy->begin_request(0);
  std::set<int> evicted;
  for (int i = 0; i < 7; ++i) evicted.insert(policy->evict());
  EXPECT_EQ(evicted.count(5), 0);
}

}  // namespace
}  // namespace moeflux::test
