// Digests of what a model computes, as JSON, for bench/e2e/bits.py: what the C API cannot ask for.
//
//   bits_probe MODEL [--isa NAME] [--precision fine] [--tokens 16] [--memory BYTES]
//
// "sessions": three sessions in every pass, prompts of different lengths beside single tokens and
// drafts that are taken back; the logits of all rows. "inside": hidden rows and routes of all
// layers of these passes. "mtp": rows of the MTP head, where the model has one. A row is a digest
// and the sum of the values.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/json.h"
#include "engine/engine.h"

namespace moeflux {
namespace {

struct Arguments {
  std::string model, isa;
  Precision precision = Precision::Fine;
  std::int64_t n_tokens = 16;
  std::uint64_t memory_bytes = 0;
};

template <class T>
Json digest_row(const T* values, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(values[i]);
  const auto hash = XXH3_64bits(values, static_cast<std::size_t>(n) * sizeof(T));
  return {fmt::format("{:016x}", hash), sum};
}

class Inside : public ForwardObserver {
 public:
  explicit Inside(std::int64_t d_model) : d_model_(d_model) {}
  void on_hidden(int, const float* x, std::int64_t n) override {
    rows.push_back(digest_row(x, n * d_model_));
  }
  void on_route(int, const std::int32_t* ids, const float* weights, std::int64_t n,
                int top_k) override {
    rows.push_back(digest_row(ids, n * top_k));
    rows.push_back(digest_row(weights, n * top_k));
  }

  Json rows = Json::array();

 private:
  std::int64_t d_model_;
};

class Probe {
 public:
  explicit Probe(const Arguments& arguments)
      : engine_(arguments.model, options(arguments)), inside_(engine_.config().d_model) {
    for (int i = 0; i < kSessions; ++i) sessions_.push_back(engine_.new_session());
  }

  Json run(std::int64_t n) {
    // Prompts of three lengths; then a piece of one beside single tokens; then drafts.
    pass({{n, n, 0}, {n / 2 + 1, n + 3, 0}, {2, 2, 0}});
    pass({{1, 0, 0}, {n + 2 - n / 2, n + 3, 0}, {1, 0, 0}});
    pass({{3, 0, 2}, {1, 0, 0}, {2, 0, 1}});
    pass({{1, 0, 0}, {1, 0, 0}, {1, 0, 0}});
    Json cases = {{"sessions", std::move(logits_)}, {"inside", std::move(inside_.rows)}};
    if (engine_.config().mtp) cases["mtp"] = std::move(mtp_);
    return cases;
  }

 private:
  static constexpr int kSessions = 3;

  static EngineOptions options(const Arguments& arguments) {
    EngineOptions options;
    options.context_length = 512;
    options.max_batch = std::max<std::int64_t>(64, 2 * arguments.n_tokens);
    options.n_sessions = kSessions;
    options.max_drafts = 2;
    options.elastic = false;
    options.isa = arguments.isa;
    options.precision = arguments.precision;
    options.memory_bytes = arguments.memory_bytes;
    return options;
  }

  struct Part {
    std::int64_t n;         // tokens of the session in this pass
    std::int64_t n_prompt;  // of the prompt they are part of
    std::int64_t n_drafts;  // the last ones, of which the last is taken back
  };

  void pass(const std::vector<Part>& parts) {
    const std::int64_t n_vocab = engine_.config().n_vocab, d = engine_.config().d_model;
    std::vector<std::vector<std::int32_t>> tokens(parts.size());
    std::vector<std::vector<float>> logits(parts.size()), hidden(parts.size());
    std::vector<Span> batch(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto n = static_cast<std::size_t>(parts[i].n);
      while (tokens[i].size() < n) tokens[i].push_back(random_token());
      logits[i].resize(n * static_cast<std::size_t>(n_vocab));
      hidden[i].resize(n * static_cast<std::size_t>(d));
      batch[i] = {.session = &sessions_[i],
                  .tokens = tokens[i],
                  .logits_of = LogitsOf::EveryToken,
                  .logits = logits[i].data(),
                  .hidden = hidden[i].data(),
                  .n_drafts = parts[i].n_drafts,
                  .prompt_tokens = engine_.prompt_tokens(parts[i].n_prompt)};
    }
    engine_.run(batch, &inside_);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (std::int64_t row = 0; row < parts[i].n; ++row)
        logits_.push_back(digest_row(logits[i].data() + row * n_vocab, n_vocab));
      if (parts[i].n_drafts > 0) sessions_[i].take_back(1);
    }
    if (engine_.config().mtp) head(tokens[0], hidden[0]);
  }

  // The head of the first session; every row but the last has a token after it.
  void head(std::span<const std::int32_t> tokens, const std::vector<float>& hidden) {
    const std::int64_t n_vocab = engine_.config().n_vocab, d = engine_.config().d_model;
    const auto n = static_cast<std::int64_t>(tokens.size()) - 1;
    if (n < 1 || sessions_[0].mtp_length() != 0) return;
    std::vector<float> logits(static_cast<std::size_t>(n * n_vocab));
    std::vector<float> out(static_cast<std::size_t>(n * d));
    engine_.forward().run_mtp({.session = &sessions_[0],
                               .hidden = hidden.data(),
                               .tokens = tokens.subspan(1),
                               .logits = logits.data(),
                               .out_hidden = out.data()});
    for (std::int64_t row = 0; row < n; ++row)
      mtp_.push_back(digest_row(logits.data() + row * n_vocab, n_vocab));
    mtp_.push_back(digest_row(out.data(), n * d));
  }

  std::int32_t random_token() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int32_t>((state_ >> 33) %
                                     static_cast<std::uint64_t>(engine_.n_sampled()));
  }

  Engine engine_;
  std::vector<Session> sessions_;
  Inside inside_;
  Json logits_ = Json::array(), mtp_ = Json::array();
  std::uint64_t state_ = 1;
};

int run(int argc, char** argv) {
  const std::map<std::string, Precision> precisions = {
      {"exact", Precision::Exact}, {"fine", Precision::Fine}, {"fast", Precision::Fast}};
  Arguments arguments;
  CLI::App app{"Digests of what a model computes"};
  app.add_option("model", arguments.model)->required();
  app.add_option("--isa", arguments.isa);
  app.add_option("--precision", arguments.precision)
      ->transform(CLI::CheckedTransformer(precisions));
  app.add_option("--tokens", arguments.n_tokens)->check(CLI::Range(2, 100));
  app.add_option("--memory", arguments.memory_bytes);
  CLI11_PARSE(app, argc, argv);
  try {
    fmt::print("{}\n", Probe(arguments).run(arguments.n_tokens).dump());
  } catch (const std::exception& error) {
    fmt::print(stderr, "bits_probe: {}\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  return moeflux::run(argc, argv);
}
