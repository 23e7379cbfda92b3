#include "experts/synthetic_trace.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "experts/replay.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

// The share of a token's experts that the token before had too, in the same layer.
double overlap(const Trace& trace) {
  const auto n_layers = static_cast<std::size_t>(trace.expert_ids().n_layers());
  double same = 0, all = 0;
  for (std::size_t i = n_layers; i < trace.n_requests(); ++i) {
    const auto before = trace.request(i - n_layers).experts, now = trace.request(i).experts;
    for (const int id : now) same += std::count(before.begin(), before.end(), id) > 0 ? 1 : 0;
    all += static_cast<double>(now.size());
  }
  return same / all;
}

double hit_rate(const Trace& trace, double share) {
  const auto n = static_cast<std::size_t>(share * trace.expert_ids().n_total());
  const auto policy = make_policy("lru", trace.expert_ids(), n);
  return replay(trace, *policy, {.n_slots = n}).hit_rate();
}

TEST(SyntheticTraceTest, HasTheShapeThatIsAskedFor) {
  const Trace trace =
      make_synthetic_trace({.n_layers = 3, .n_experts = 32, .top_k = 4, .n_tokens = 20});
  EXPECT_EQ(trace.steps().size(), 20);
  EXPECT_EQ(trace.n_requests(), 60);
  EXPECT_EQ(trace.n_uses(), 240);
  for (std::size_t i = 0; i < trace.n_requests(); ++i) {
    const Trace::Request request = trace.request(i);
    EXPECT_EQ(request.layer, static_cast<int>(i % 3));
    EXPECT_TRUE(std::is_sorted(request.experts.begin(), request.experts.end()));
    EXPECT_EQ(std::adjacent_find(request.experts.begin(), request.experts.end()),
              request.experts.end());
  }
}

TEST(SyntheticTraceTest, FollowsItsSeed) {
  const SyntheticTraceOptions options{.n_layers = 2, .n_experts = 64, .top_k = 8, .n_tokens = 50};
  SyntheticTraceOptions other = options;
  other.seed = 2;
  const Trace a = make_synthetic_trace(options), b = make_synthetic_trace(options);
  const Trace c = make_synthetic_trace(other);
  bool all_same = true;
  for (std::size_t i = 0; i < a.n_requests(); ++i) {
    const auto x = a.request(i).experts, y = b.request(i).experts, z = c.request(i).experts;
    EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end()));
    all_same = all_same && std::equal(x.begin(), x.end(), z.begin(), z.end());
  }
  EXPECT_FALSE(all_same);
}

// Measured on Qwen3-30B-A3B (48 x 128, top 8): neighbouring tokens share 39 to 42 % of their
// experts; LRU hits 65 % with an eighth of the experts, 81 % with a quarter (LEARNED 3).
TEST(SyntheticTraceTest, LooksLikeARealModel) {
  double shared = 0, eighth = 0, quarter = 0, half = 0;
  constexpr int kTexts = 6;
  for (int seed = 1; seed <= kTexts; ++seed) {
    const Trace trace = make_synthetic_trace({.n_layers = 48,
                                              .n_experts = 128,
                                              .top_k = 8,
                                              .n_tokens = 129,
                                              .topic_tokens = 100000,
                                              .seed = static_cast<std::uint64_t>(seed)});
    shared += overlap(trace) / kTexts;
    eighth += hit_rate(trace, 0.125) / kTexts;
    quarter += hit_rate(trace, 0.25) / kTexts;
    half += hit_rate(trace, 0.5) / kTexts;
  }
  EXPECT_NEAR(shared, 0.41, 0.03);
  EXPECT_NEAR(eighth, 0.60, 0.05);
  EXPECT_NEAR(quarter, 0.80, 0.03);
  EXPECT_NEAR(half, 0.91, 0.02);
}

TEST(SyntheticTraceTest, SkewAndLocalityDoWhatTheySay) {
  SyntheticTraceOptions options{.n_layers = 8, .n_experts = 128, .top_k = 8, .n_tokens = 300};
  const double usual = overlap(make_synthetic_trace(options));
  options.locality = 0.2;
  const double alone = overlap(make_synthetic_trace(options));
  EXPECT_LT(alone, usual - 0.1);
  options.skew = 4;
  EXPECT_GT(overlap(make_synthetic_trace(options)), alone + 0.1);
}

TEST(SyntheticTraceTest, RefusesSizesThatMakeNoSense) {
  expect_error(Errc::BadInput, {"9 at a time"},
               [] { make_synthetic_trace({.n_layers = 1, .n_experts = 8, .top_k = 9}); });
  expect_error(Errc::BadInput, {"skew -1"}, [] { make_synthetic_trace({.skew = -1}); });
}

}  // namespace
}  // namespace moeflux::test
