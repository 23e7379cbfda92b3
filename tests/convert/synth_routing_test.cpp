// How synthetic models behave when they run: sizes of activations, and which experts are chosen.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "convert/synth/synth.h"
#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux::test {
namespace {

// What one pass over random tokens does.
class Watcher : public ForwardObserver {
 public:
  explicit Watcher(int d_model) : d_model_(d_model) {}

  void on_hidden(int index, const float* x, std::int64_t n) override {
    double sum = 0;
    for (std::int64_t i = 0; i < n * d_model_; ++i) sum += double{x[i]} * x[i];
    rms[index] = std::sqrt(sum / static_cast<double>(n * d_model_));
  }
  void on_route(int layer, const std::int32_t* ids, const float*, std::int64_t n,
                int top_k) override {
    for (std::int64_t i = 0; i < n; ++i) {
      routes[layer].emplace_back(ids + i * top_k, ids + (i + 1) * top_k);
    }
  }

  std::map<int, double> rms;
  std::map<int, std::vector<std::set<std::int32_t>>> routes;

 private:
  int d_model_;
};

struct Pass {
  Watcher watcher;
  std::vector<float> logits;
};
Pass run(const std::string& path, std::int64_t n_tokens) {
  LoadedModel model(path, {.n_threads = 2, .max_tokens = n_tokens, .max_length = n_tokens});
  Pass result{Watcher(model.config().d_model),
              std::vector<float>(static_cast<std::size_t>(model.config().n_vocab))};
  const std::vector<std::int32_t> tokens = Random(5).tokens(n_tokens, model.config().n_vocab);
  Session session = model.new_session();
  const Span span{&session, tokens, LogitsOf::LastToken, result.logits.data(), nullptr};
  model.forward().run({&span, 1}, &result.watcher);
  return result;
}

// Means over the layers.
struct Routing {
  double overlap = 0;      // share of a token's experts that the token before it chose, too
  double top_quarter = 0;  // share of choices that fall on the most popular quarter of experts
};
Routing routing_of(const Watcher& watcher, int n_experts) {
  Routing mean;
  for (const auto& [layer, tokens] : watcher.routes) {
    std::vector<double> counts(static_cast<std::size_t>(n_experts));
    double same = 0, total = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      for (const std::int32_t e : tokens[i]) {
        ++counts[static_cast<std::size_t>(e)];
        ++total;
        same += i > 0 && tokens[i - 1].contains(e) ? 1 : 0;
      }
    }
    std::sort(counts.rbegin(), counts.rend());
    double top = 0;
    for (int i = 0; i < n_experts / 4; ++i) top += counts[static_cast<std::size_t>(i)];
    const auto n_layers = static_cast<double>(watcher.routes.size());
    mean.overlap += same / total / n_layers;
    mean.top_quarter += top / total / n_layers;
  }
  return mean;
}

Routing routing_with(const std::string& like, double skew) {
  const TempDir dir;
  SynthOptions options;
  options.statistics.skew = skew;
  synthesize(synth_shape(like, {.n_layers = 6}), dir.path(), options);
  return routing_of(run(dir.path(), 200).watcher, 64);
}

class SynthRouting : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, SynthRouting, testing::Values("tiny-qwen", "tiny-deepseek"),
                         [](const auto& test) {
                           return std::string(test.param).substr(sizeof("tiny-") - 1);
                         });

TEST_P(SynthRouting, ActivationsKeepTheirSizeOverTheWholeDepth) {
  const TempDir dir;
  synthesize(synth_shape(GetParam(), {}), dir.path(), {});
  const Pass result = run(dir.path(), 24);
  ASSERT_GE(result.watcher.rms.size(), 41u);
  for (const auto& [index, rms] : result.watcher.rms) {
    EXPECT_GT(rms, 0.7) << "layer " << index;
    EXPECT_LT(rms, 2.2) << "layer " << index;
  }
  double sum = 0, squares = 0;
  for (const float logit : result.logits) {
    ASSERT_TRUE(std::isfinite(logit));
    sum += logit;
    squares += double{logit} * logit;
  }
  const auto n = static_cast<double>(result.logits.size());
  EXPECT_NEAR(sum / n, 0, 0.5);
  EXPECT_NEAR(std::sqrt(squares / n), 3, 0.6);
}

// 8 of 64 experts: chance alone gives an overlap of 0.125, and a top quarter of about 0.32 where
// 200 tokens are all there is to judge by.
TEST_P(SynthRouting, WithoutSkewAllExpertsAreAlike) {
  const Routing routing = routing_with(GetParam(), 0);
  EXPECT_NEAR(routing.overlap, 0.14, 0.04);
  EXPECT_LT(routing.top_quarter, 0.38);
}

TEST_P(SynthRouting, SkewMakesSomeExpertsPopularAndNeighboursAlike) {
  const Routing half = routing_with(GetParam(), 0.5), full = routing_with(GetParam(), 1);
  EXPECT_GT(half.overlap, 0.22);
  EXPECT_GT(full.overlap, half.overlap + 0.04);
  EXPECT_LT(full.overlap, 0.7);
  EXPECT_GT(half.top_quarter, 0.42);
  EXPECT_GT(full.top_quarter, half.top_quarter + 0.08);
  EXPECT_LT(full.top_quarter, 0.9);
}

}  // namespace
}  // namespace moeflux::test
