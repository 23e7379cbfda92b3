// What several sessions in one pass cost and save, as JSON: one object for each number of sessions.
//
//   batching_bench MODEL [--sessions 1,2,4,8] [--tokens 64] [--cache 0.25] [--threads N]
//
// Every session writes a text of its own; only passes in which all of them decode are measured.
// bench/e2e/batching.py runs this in rounds and prints the table.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/json.h"
#include "engine/scheduler/scheduler.h"

namespace moeflux {
namespace {

struct Arguments {
  std::string model;
  std::vector<int> sessions = {1, 2, 4, 8};
  std::int64_t n_tokens = 64;
  double cache = 1;  // share of the experts that fits in memory
  int threads = 0;
  std::uint64_t seed = 1;
};

EngineOptions engine_options(const Arguments& arguments, int n_sessions) {
  EngineOptions options;
  options.n_threads = arguments.threads;
  options.context_length = arguments.n_tokens + 256;
  options.max_batch = 128;
  options.n_sessions = n_sessions;
  options.elastic = false;
  options.preload = true;
  options.lookahead = 0;  // reads only what was chosen
  if (arguments.cache >= 1) return options;
  const MemoryPlan plan = Engine(arguments.model, options).plan();
  const auto n_slots =
      static_cast<std::uint64_t>(std::ceil(arguments.cache * static_cast<double>(plan.max_slots)));
  options.memory_bytes = plan.fixed_bytes() + std::max(n_slots, plan.min_slots) * plan.slot_bytes;
  return options;
}

// Random tokens differ in every session and round: no two share a topic.
AnswerRequest job(const Engine& engine, const Arguments& arguments, std::uint64_t number) {
  AnswerRequest request;
  std::uint64_t state = arguments.seed * 1000 + number;
  for (int i = 0; i < 12; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    request.prompt.push_back(
        static_cast<TokenId>((state >> 33) % static_cast<std::uint64_t>(engine.n_sampled())));
  }
  request.max_tokens = arguments.n_tokens;
  request.ignore_end = true;
  request.sampling.seed = state;
  return request;
}

// Experts per token of a pass whose rows choose independently and evenly.
double independent(const ModelSizes& sizes, int n_rows) {
  double sum = 0;
  for (const BankSize& bank : sizes.banks) {
    const double share = static_cast<double>(bank.top_k) / bank.n_experts;
    sum += bank.n_experts * (1 - std::pow(1 - share, n_rows));
  }
  return sum / n_rows;
}

Json measure(const Arguments& arguments, int n_sessions) {
  Engine engine(arguments.model, engine_options(arguments, n_sessions));
  Scheduler scheduler(engine, {.n_sessions = n_sessions});
  int n_decoding = 0;
  for (int i = 0; i < n_sessions; ++i) {
    bool first = true;
    scheduler.submit(job(engine, arguments, static_cast<std::uint64_t>(i)),
                     [&n_decoding, first](JobId, const JobEvent& event) mutable {
                       if (!std::holds_alternative<JobToken>(event) || !first) return;
                       first = false;
                       ++n_decoding;
                     });
  }
  while (n_decoding < n_sessions) scheduler.step();

  const SchedulerStats before = scheduler.stats();
  const auto start = std::chrono::steady_clock::now();
  while (scheduler.step()) {
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const SchedulerStats after = scheduler.stats();
  const auto rows = static_cast<double>(after.rows() - before.rows());
  const auto passes = static_cast<double>(after.passes - before.passes);
  const auto per_row = [&](std::uint64_t a, std::uint64_t b) {
    return static_cast<double>(a - b) / rows;
  };
  const double requested = per_row(after.experts_requested, before.experts_requested);
  const double missed = per_row(after.experts_missed, before.experts_missed);
  return {{"sessions", n_sessions},
          {"cache", arguments.cache},
          {"tokens", rows},
          {"tokens_per_second", rows / seconds.count()},
          {"seconds_per_pass", seconds.count() / passes},
          {"experts_per_token", requested},
          {"experts_per_token_if_independent", independent(engine.sizes(), n_sessions)},
          {"hit_rate", 1 - missed / requested},
          {"bytes_read_per_token", per_row(after.bytes_read, before.bytes_read)}};
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app{"Several sessions in one pass"};
  app.add_option("model", arguments.model)->required();
  app.add_option("--sessions", arguments.sessions)->delimiter(',');
  app.add_option("--tokens", arguments.n_tokens)->check(CLI::PositiveNumber);
  app.add_option("--cache", arguments.cache)->check(CLI::Range(0.0, 1.0));
  app.add_option("--threads", arguments.threads);
  app.add_option("--seed", arguments.seed);
  CLI11_PARSE(app, argc, argv);
  for (const int n : arguments.sessions) std::puts(measure(arguments, n).dump().c_str());
  return 0;
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  try {
    return moeflux::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "batching_bench: %s\n", error.what());
    return 1;
  }
}
