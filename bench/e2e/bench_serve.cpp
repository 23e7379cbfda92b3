// An engine that stays open and measures what standard input asks for: bench/e2e/ab_open.py asks
// one of the old build and one of the new build in turns, without loading the model every time.
//
//   bench_serve MODEL [--ram 20G] [--threads 0] [--context 4096] [--warm-up 32]
//
// Says "ready" when the model is loaded and warm. A line "p N SEED" reads a prompt of N random
// tokens, "n N SEED" feeds N single tokens; the answer is a line with the seconds per token and the
// bytes that were read per token.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "engine/measure/bench.h"

namespace moeflux {
namespace {

struct Asked {
  char kind = 0;
  std::int64_t n = 0;
  std::uint64_t seed = 0;
};

Asked parse(const std::string& line) {
  Asked asked;
  std::istringstream stream(line);
  stream >> asked.kind >> asked.n >> asked.seed;
  if (!stream || (asked.kind != 'p' && asked.kind != 'n') || asked.n < 1)
    fail(Errc::BadInput, "\"{}\" is not \"p N SEED\" or \"n N SEED\"", line);
  return asked;
}

BenchOptions usual() {
  return {
      .n_prompt = {}, .n_generate = {}, .repetitions = 1, .n_warm_up = 0, .measure_machine = false};
}

void measure(Engine& engine, const Asked& asked) {
  BenchOptions options = usual();
  options.seed = asked.seed;
  (asked.kind == 'p' ? options.n_prompt : options.n_generate) = {asked.n};
  const BenchTest test = run_bench(engine, options).at(0);
  const auto n = static_cast<double>(test.n_tokens);
  fmt::print("{:.9f} {:.0f}\n", test.median_seconds() / n,
             static_cast<double>(test.runs[0].activity.bytes_read) / n);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  std::string model;
  EngineOptions options;
  options.context_length = 4096;
  options.max_drafts = kAutoDrafts;  // as the commands open it
  options.preload = true;
  BenchOptions warm_up = usual();
  warm_up.n_warm_up = 32;
  CLI::App app{"Measures what standard input asks for"};
  app.add_option("model", model)->required();
  app.add_option("--ram", options.memory_bytes)->transform(CLI::AsSizeValue(false));
  app.add_option("--threads", options.n_threads);
  app.add_option("--context", options.context_length);
  app.add_option("--warm-up", warm_up.n_warm_up);
  CLI11_PARSE(app, argc, argv);
  try {
    Engine engine(model, options);
    run_bench(engine, warm_up);
    fmt::print("ready {}, {} threads, {} of {} experts in memory\n", engine.backend().name(),
               engine.backend().n_threads(), engine.experts().cache().capacity(),
               engine.experts().store().n_experts_total());
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) measure(engine, parse(line));
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_serve: {}\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  return moeflux::run(argc, argv);
}
