#include "experts/synthetic_trace.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr int kDim = 16;  // of a hidden state
constexpr int kVocabulary = 4096, kTopicVocabulary = 256;

// How much each part of a hidden state weighs, chosen so that routing is as alike from token to
// token, and as hard to cache, as that of a real model (LEARNED 3).
constexpr double kToken = 0.8, kTopic = 1.3, kContext = 1.0, kNoise = 0.4;
constexpr double kBias = 0.2;        // popular experts
constexpr double kDrift = 0.88;      // what the context keeps from one token to the next
constexpr double kTopicWords = 0.5;  // share of words that are the topic's own

class Random {  // splitmix64
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  // Close to normal, variance 1: the sum of four uniform numbers.
  float normal() {
    const std::uint64_t b = bits();
    const auto sum =
        static_cast<double>((b & 0xffff) + ((b >> 16) & 0xffff) + ((b >> 32) & 0xffff) + (b >> 48));
    return static_cast<float>((sum / 65536.0 - 2.0) * std::sqrt(3.0));
  }

 private:
  std::uint64_t state_;
};

using Vector = std::vector<float>;

Vector normals(Random& random, std::size_t n) {
  Vector values(n);
  for (float& value : values) value = random.normal();
  return values;
}

// Word r is drawn with probability proportional to 1 / (r + 3).
class ZipfWords {
 public:
  explicit ZipfWords(int n) : cumulative_(static_cast<std::size_t>(n)) {
    double sum = 0;
    for (int r = 0; r < n; ++r) {
      sum += 1.0 / (r + 3);
      cumulative_[static_cast<std::size_t>(r)] = sum;
    }
  }
  int draw(Random& random) const {
    const double x = random.uniform() * cumulative_.back();
    return static_cast<int>(std::lower_bound(cumulative_.begin(), cumulative_.end(), x) -
                            cumulative_.begin());
  }

 private:
  std::vector<double> cumulative_;
};

struct Router {
  Vector matrix;  // [n_experts, kDim]
  Vector bias;    // [n_experts]
  float token = 0, topic = 0, context = 0, noise = 0;
};

// Early layers look at the word, later ones more at what the text is about.
Router make_router(Random& random, const SyntheticTraceOptions& options, int layer) {
  const auto n = static_cast<std::size_t>(options.n_experts);
  Router router;
  router.matrix = normals(random, n * kDim);
  std::vector<std::size_t> rank(n);
  std::iota(rank.begin(), rank.end(), 0);
  for (std::size_t i = n; i > 1; --i) std::swap(rank[i - 1], rank[random.bits() % i]);
  const double depth =
      options.n_layers > 1 ? static_cast<double>(layer) / (options.n_layers - 1) : 1;
  const double bias = kBias * options.skew * (0.6 + 0.8 * random.uniform());
  router.bias.resize(n);
  for (std::size_t e = 0; e < n; ++e) {
    const double share = (static_cast<double>(rank[e]) + 0.5) / static_cast<double>(n);
    router.bias[e] = static_cast<float>(bias * kDim * 0.25 * -std::log(share));
  }
  const double mixed = std::min(1.0, 0.15 + depth * 6) * (0.85 + 0.3 * random.uniform());
  router.token = static_cast<float>(kToken);
  router.topic = static_cast<float>(kTopic * options.locality * mixed);
  router.context = static_cast<float>(kContext * options.locality * mixed);
  router.noise = static_cast<float>(kNoise * (0.7 + 0.6 * random.uniform()));
  return router;
}

struct Text {
  Vector token, topic, context;  // [kDim] each
};

void check(const SyntheticTraceOptions& o) {
  const bool sizes = o.n_layers >= 1 && o.n_layers <= 1024 && o.n_experts >= 1 &&
                     o.n_experts <= 16384 && o.top_k >= 1 && o.top_k <= o.n_experts &&
                     o.n_tokens >= 1 && o.n_tokens <= 1'000'000 && o.topic_tokens >= 1 &&
                     o.record_bytes >= 1;
  const bool shape = o.skew >= 0 && o.skew <= 10 && o.locality >= 0 && o.locality <= 10;
  if (!sizes || !shape) {
    fail(Errc::BadInput,
         "no trace of {} tokens through {} layers of {} experts, {} at a time, with skew {} and "
         "locality {}: at least one of each, no more at a time than there are experts, at most "
         "16384 experts and a million tokens; skew and locality from 0 to 10",
         o.n_tokens, o.n_layers, o.n_experts, o.top_k, o.skew, o.locality);
  }
}

class Generator {
 public:
  explicit Generator(const SyntheticTraceOptions& options)
      : options_(options),
        random_(options.seed),
        words_(kVocabulary),
        topic_words_(kTopicVocabulary),
        embedding_(normals(random_, static_cast<std::size_t>(kVocabulary) * kDim)) {
    for (int layer = 0; layer < options.n_layers; ++layer) {
      routers_.push_back(make_router(random_, options, layer));
    }
    text_.context = normals(random_, kDim);
  }

  void run(RequestObserver& observer) {
    for (int t = 0; t < options_.n_tokens; ++t) {
      next_token(t == 0);
      observer.on_step(1);
      for (int layer = 0; layer < options_.n_layers; ++layer) {
        observer.on_request(layer, route(routers_[static_cast<std::size_t>(layer)]));
      }
    }
  }

 private:
  void next_token(bool first) {
    if (first || random_.uniform() * options_.topic_tokens < 1) {
      text_.topic = normals(random_, kDim);
      topic_first_word_ = static_cast<int>(random_.bits() % (kVocabulary - kTopicVocabulary));
    }
    const int word = random_.uniform() < kTopicWords
                         ? topic_first_word_ + topic_words_.draw(random_)
                         : words_.draw(random_);
    const float* begin = embedding_.data() + static_cast<std::size_t>(word) * kDim;
    text_.token.assign(begin, begin + kDim);
    const auto keep = static_cast<float>(kDrift);
    const auto fresh = static_cast<float>(std::sqrt(1 - kDrift * kDrift));
    for (float& c : text_.context) c = keep * c + fresh * random_.normal();
  }

  std::span<const int> route(const Router& router) {
    float state[kDim];
    for (std::size_t i = 0; i < kDim; ++i) {
      state[i] = router.token * text_.token[i] + router.topic * text_.topic[i] +
                 router.context * text_.context[i] + router.noise * random_.normal();
    }
    const std::size_t n = router.bias.size();
    scores_.resize(n);
    for (std::size_t e = 0; e < n; ++e) {
      const float* row = router.matrix.data() + e * kDim;
      float sum = router.bias[e];
      for (std::size_t i = 0; i < kDim; ++i) sum += row[i] * state[i];
      scores_[e] = {-sum, static_cast<int>(e)};
    }
    const auto end = scores_.begin() + options_.top_k;
    std::nth_element(scores_.begin(), end - 1, scores_.end());
    chosen_.clear();
    for (auto it = scores_.begin(); it != end; ++it) chosen_.push_back(it->second);
    std::sort(chosen_.begin(), chosen_.end());
    return chosen_;
  }

  SyntheticTraceOptions options_;
  Random random_;
  ZipfWords words_, topic_words_;
  Vector embedding_;  // [kVocabulary, kDim]
  std::vector<Router> routers_;
  Text text_;
  int topic_first_word_ = 0;
  std::vector<std::pair<float, int>> scores_;
  std::vector<int> chosen_;
};

}  // namespace

Trace make_synthetic_trace(const SyntheticTraceOptions& options) {
  check(options);
  TraceInfo info;
  info.model =
      fmt::format("synthetic {}x{} top {}", options.n_layers, options.n_experts, options.top_k);
  info.top_k = options.top_k;
  info.layers.assign(static_cast<std::size_t>(options.n_layers),
                     {options.n_experts, options.record_bytes});
  Trace trace(std::move(info));
  Generator(options).run(trace);
  return trace;
}

}  // namespace moeflux
