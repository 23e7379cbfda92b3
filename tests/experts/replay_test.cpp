#include "experts/replay.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "experts/synthetic_trace.h"
#include "experts/usage_profile.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux::test {
namespace {

Trace one_layer(int n_experts, const std::vector<std::vector<int>>& requests) {
  Trace trace({"test", 1, {{n_experts, 100}}});
  for (const std::vector<int>& experts : requests) {
    trace.on_step(1);
    trace.on_request(0, experts);
  }
  return trace;
}

ReplayResult replay_with(const std::string& name, const Trace& trace,
                         const ReplayOptions& options) {
  const auto policy = name == "belady" ? make_belady(trace)
                                       : make_policy(name, trace.expert_ids(), options.n_slots);
  return replay(trace, *policy, options);
}

TEST(ReplayTest, CountsHitsMissesAndBytes) {
  const Trace trace = one_layer(4, {{0}, {1}, {0}, {2}, {0}, {1}});
  const ReplayResult result = replay_with("lru", trace, {.n_slots = 2});
  EXPECT_EQ(result.hits, 2);  // the second and third 0
  EXPECT_EQ(result.misses, 4);
  EXPECT_EQ(result.bytes_missed, 400);
  EXPECT_EQ(result.n_tokens, 6);
  EXPECT_DOUBLE_EQ(result.hit_rate(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(result.bytes_per_token(), 400.0 / 6);
  EXPECT_DOUBLE_EQ(result.tokens_per_second(1000), 15);
}

TEST(ReplayTest, BytesAreThoseOfTheLayer) {
  Trace trace({"test", 1, {{2, 10}, {2, 1000}}});
  trace.on_step(3);
  trace.on_request(0, std::vector<int>{0, 1});
  trace.on_request(1, std::vector<int>{1});
  const ReplayResult result = replay_with("lru", trace, {.n_slots = 4});
  EXPECT_EQ(result.bytes_missed, 1020);
  EXPECT_EQ(result.n_tokens, 3);
}

TEST(ReplayTest, SkipsAndWarms) {
  const Trace trace = one_layer(4, {{0}, {1}, {0}, {1}});
  const ReplayResult late = replay_with("lru", trace, {.n_slots = 2, .skip_tokens = 2});
  EXPECT_EQ(late.hits, 2);
  EXPECT_EQ(late.misses, 0);
  EXPECT_EQ(late.tokens_per_second(1), std::numeric_limits<double>::infinity());
  const std::vector<int> warm{1, 0, 3};
  const ReplayResult warmed = replay_with("lru", trace, {.n_slots = 2, .warm = warm});
  EXPECT_EQ(warmed.misses, 0);
}

TEST(ReplayTest, ARequestNeverEvictsItself) {
  const Trace trace = one_layer(6, {{0, 1, 2}, {0, 1, 3}, {0, 1, 4}, {0, 1, 5}});
  for (const char* name : {"lru", "frequency", "learned", "belady"}) {
    EXPECT_EQ(replay_with(name, trace, {.n_slots = 3}).hits, 6) << name;
  }
}

TEST(ReplayTest, RequestsMayBeLargerThanTheCache) {
  const Trace trace = one_layer(8, {{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}, {7}});
  for (const char* name : {"lru", "frequency", "learned", "belady"}) {
    const ReplayResult result = replay_with(name, trace, {.n_slots = 2});
    EXPECT_EQ(result.hits + result.misses, 13) << name;
    EXPECT_EQ(result.hits, 2) << name;
  }
}

// The fewest misses there can be, by trying every choice.
std::uint64_t fewest_misses(const Trace& trace, std::size_t n_slots) {
  std::map<std::pair<std::size_t, std::set<int>>, std::uint64_t> known;
  const std::function<std::uint64_t(std::size_t, std::set<int>)> best =
      [&](std::size_t at, const std::set<int>& cached) -> std::uint64_t {
    if (at == trace.n_requests()) return 0;
    const auto found = known.find({at, cached});
    if (found != known.end()) return found->second;
    const Trace::Request request = trace.request(at);
    std::set<int> needed(request.experts.begin(), request.experts.end());
    std::set<int> all = cached;
    all.insert(needed.begin(), needed.end());
    const std::uint64_t n_missed = all.size() - cached.size();
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    const std::function<void(std::set<int>)> shrink = [&](const std::set<int>& now) {
      if (now.size() <= n_slots) {
        least = std::min(least, best(at + 1, now));
        return;
      }
      for (const int id : now) {
        if (needed.count(id) != 0) continue;
        std::set<int> fewer = now;
        fewer.erase(id);
        shrink(fewer);
      }
    };
    shrink(all);
    return known[{at, cached}] = n_missed + least;
  };
  return best(0, {});
}

TEST(ReplayTest, BeladyIsOptimal) {
  Random random(5);
  for (int round = 0; round < 40; ++round) {
    Trace trace({"test", 2, {{4, 1}, {4, 1}}});
    for (int t = 0; t < 6; ++t) {
      trace.on_step(1);
      for (int layer = 0; layer < 2; ++layer) {
        const int a = static_cast<int>(random.integer(0, 3));
        trace.on_request(layer, std::vector<int>{a, (a + 1 + t % 2) % 4});
      }
    }
    for (const std::size_t n_slots : {2, 3, 5}) {
      const ReplayResult result = replay_with("belady", trace, {.n_slots = n_slots});
      EXPECT_EQ(result.misses, fewest_misses(trace, n_slots)) << round << ", " << n_slots;
      for (const PolicyInfo& policy : policy_list()) {
        EXPECT_GE(replay_with(std::string(policy.name), trace, {.n_slots = n_slots}).misses,
                  result.misses);
      }
    }
  }
}

// What makes the default the default.
TEST(ReplayTest, TheDefaultBeatsLruOnRealisticRouting) {
  const Trace trace = make_synthetic_trace(
      {.n_layers = 24, .n_experts = 128, .top_k = 8, .n_tokens = 400, .seed = 3});
  const auto rate = [&](std::string_view name, double share) {
    const auto n = static_cast<std::size_t>(share * trace.expert_ids().n_total());
    return replay_with(std::string(name), trace, {.n_slots = n, .skip_tokens = 80}).hit_rate();
  };
  EXPECT_GT(rate(kDefaultPolicy, 0.10), rate("lru", 0.10) + 0.05);
  EXPECT_GT(rate(kDefaultPolicy, 0.25), rate("lru", 0.25) + 0.005);
  EXPECT_GT(rate(kDefaultPolicy, 0.50), rate("lru", 0.50) - 0.005);
  EXPECT_GT(rate("frequency", 0.10), rate("lru", 0.10) + 0.05);
  EXPECT_LT(rate(kDefaultPolicy, 0.25), rate("belady", 0.25));
  EXPECT_EQ(rate("lru", 1), rate("belady", 1));
}

// A change of a policy shows here. Recorded with: trace record models/demo --prompts prompts.json
// -n 160 --temp 0 -o demo.trace
TEST(ReplayTest, PoliciesOnARecordedTrace) {
  const Trace trace = read_trace(data_path("traces/demo.trace"));
  EXPECT_EQ(trace.n_tokens(), 2591);
  const std::map<std::string, std::array<double, 3>> expected{{"lru", {3.74, 24.37, 53.99}},
                                                              {"frequency", {12.31, 31.44, 61.29}},
                                                              {"learned", {13.21, 33.17, 63.03}},
                                                              {"belady", {32.74, 57.81, 81.43}}};
  for (const auto& [name, rates] : expected) {
    std::size_t i = 0;
    for (const std::size_t n_slots : {58, 144, 288}) {  // 10, 25, 50 %
      const ReplayResult result =
          replay_with(name, trace, {.n_slots = n_slots, .skip_tokens = 518});
      EXPECT_NEAR(100 * result.hit_rate(), rates[i++], 0.1) << name << ", " << n_slots;
    }
  }
}

// A profile of the first half of a text helps at the start of the second.
TEST(ReplayTest, AWarmStartSavesMisses) {
  const Trace trace = read_trace(data_path("traces/demo.trace"));
  UsageProfile profile("demo", trace.expert_ids().n_experts());
  Trace rest(trace.info());
  for (std::size_t s = 0; s < trace.steps().size(); ++s) {
    const Trace::Step& step = trace.steps()[s];
    const bool learn = s < trace.steps().size() / 2;
    if (!learn) rest.on_step(step.n_tokens);
    for (std::size_t i = 0; i < step.n_requests; ++i) {
      const Trace::Request request = trace.request(step.first_request + i);
      std::vector<int> experts;
      for (const int id : request.experts) experts.push_back(trace.expert_ids().expert(id));
      if (learn) {
        profile.record(request.layer, experts);
      } else if (rest.n_tokens() < 100) {
        rest.on_request(request.layer, experts);
      }
    }
  }
  std::vector<int> warm;
  for (const ExpertKey& key : profile.hottest(288)) {
    warm.push_back(trace.expert_ids().id(key.bank, key.expert));
  }
  const auto cold_policy = make_policy("learned", rest.expert_ids(), 288);
  const auto warm_policy = make_policy("learned", rest.expert_ids(), 288);
  for (int id = 0; id < trace.expert_ids().n_total(); ++id) {
    const ExpertKey key = trace.expert_ids().key(id);
    warm_policy->remember(id, profile.rate(key.bank, key.expert));
  }
  const ReplayResult from_cold = replay(rest, *cold_policy, {.n_slots = 288});
  const ReplayResult from_warm = replay(rest, *warm_policy, {.n_slots = 288, .warm = warm});
  EXPECT_LT(from_warm.misses + 100, from_cold.misses);
}

}  // namespace
}  // namespace moeflux::test
