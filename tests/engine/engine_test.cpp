// The engine as its users see it: under a ceiling, with a profile, while memory gets short.
#include "engine/engine.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "engine/measure/bench.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::expect_same_bits;

EngineOptions small_options() {
  EngineOptions options;
  options.n_threads = 2;
  options.context_length = 128;
  options.max_batch = 64;
  options.memory_bytes = std::uint64_t{1} << 30;
  options.elastic = false;
  return options;
}

std::string demo() {
  return test::source_path("models/demo");
}

std::uint64_t floor_of(const EngineOptions& options) {
  return Engine(demo(), options).plan().floor_bytes();
}

std::vector<float> logits(Engine& engine, std::int64_t n_tokens) {
  const std::vector<TokenId> tokens = test::Random(7).tokens(n_tokens, engine.config().n_vocab);
  Session session = engine.new_session();
  std::vector<float> last = engine.prefill(session, std::span(tokens).first(20));
  for (const TokenId token : std::span(tokens).subspan(20)) {
    const Span span{.session = &session, .tokens = {&token, 1}, .logits = last.data()};
    engine.run({&span, 1});
  }
  return last;
}

// With exact arithmetic all tokens are computed alike; otherwise a prompt's form follows its
// length.
TEST(EngineTest, APromptInTwoParts) {
  EngineOptions options = small_options();
  options.context_length = 512;
  const std::vector<TokenId> tokens = test::Random(8).tokens(500, 2000);
  const auto first = std::span(tokens).first(300), second = std::span(tokens).subspan(300);
  for (const Precision precision : {Precision::Exact, Precision::Fine}) {
    options.precision = precision;
    options.max_batch = 64;
    Engine engine(test::source_path("models/demo-mla"), options);
    options.max_batch = 512;
    Engine at_once(test::source_path("models/demo-mla"), options);
    Session whole = at_once.new_session(), passes = engine.new_session(),
            parts = engine.new_session(), announced = engine.new_session();
    const std::vector<float> want = at_once.prefill(whole, tokens);
    expect_same_bits(want, engine.prefill(passes, tokens), "passes of 64");
    std::vector<float> got(want.size());
    engine.prefill(announced, first, got, {.cancelled = {}, .hidden = {}, .n_prompt = 500});
    engine.prefill(announced, second, got, {.cancelled = {}, .hidden = {}, .n_prompt = 500});
    expect_same_bits(want, got, "pieces of one prompt");
    engine.prefill(parts, first);
    got = engine.prefill(parts, second);
    if (precision == Precision::Exact) {
      expect_same_bits(want, got, "two prompts");
    } else {
      EXPECT_NE(want, got);  // the second is a short one
      test::expect_close(got, std::vector<double>(want.begin(), want.end()), 1e-4, "two prompts");
    }
  }
}

TEST(EngineTest, ReservesNoMoreThanItsCeiling) {
  EngineOptions options = small_options();
  const std::uint64_t floor = floor_of(options);
  for (const double share : {1.0, 1.1, 1.25, 1.5}) {
    options.memory_bytes = static_cast<std::uint64_t>(static_cast<double>(floor) * share);
    Engine engine(demo(), options);
    std::uint64_t used = 0;
    for (const auto& [tag, bytes] : engine.memory().by_tag()) used += bytes;
    used += Session::bytes_needed(engine.config(), {engine.context_length()});
    EXPECT_LE(used, options.memory_bytes);
    EXPECT_GT(used + engine.plan().slot_bytes,
              std::min(options.memory_bytes, engine.plan().all_bytes()));
  }
}

// What the kernels take beside the workspace grows with the pass and with the threads.
TEST(EngineTest, KernelsTakeNoMoreThanPlanned) {
  const std::vector<TokenId> tokens = test::Random(9).tokens(1500, 2000);
  for (const char* model : {"models/demo", "models/demo-mla"}) {
    for (const Precision precision : {Precision::Exact, Precision::Fine}) {
      for (const int n_threads : {1, 3}) {
        EngineOptions options = small_options();
        options.n_threads = n_threads;
        options.precision = precision;
        options.context_length = 1600;
        options.max_batch = 1024;
        Engine engine(test::source_path(model), options);
        Session session = engine.new_session();
        engine.prefill(session, tokens);
        const std::string what =
            fmt::format("{} {} {} threads", model, precision_name(precision), n_threads);
        EXPECT_GT(engine.backend().scratch_bytes(), 0u) << what;
        EXPECT_LE(engine.backend().scratch_bytes(), engine.plan().kernel_bytes) << what;
      }
    }
  }
}

TEST(EngineTest, BelowTheFloorItSaysWhatItNeeds) {
  EngineOptions options = small_options();
  const std::uint64_t floor = floor_of(options);
  options.memory_bytes = floor - 1;
  expect_error(Errc::OutOfMemory, {format_bytes(floor), "-c"}, [&] { Engine(demo(), options); });
  options.memory_bytes = floor;
  Engine engine(demo(), options);
  EXPECT_EQ(engine.experts().cache().capacity(), engine.plan().min_slots);
}

// Also where experts differ in shape and format, so that not all go to the threads in one call.
TEST(EngineTest, TheCeilingDoesNotChangeALogit) {
  EngineOptions options = small_options();
  for (const char* model : {"models/demo", "models/demo-mla", "tests/fixtures/mlx-qwen-mixed",
                            "tests/fixtures/mlx-qwen-3bit", "tests/fixtures/mlx-dsv3-embedq"}) {
    const std::string path = test::source_path(model);
    for (const Precision precision : {Precision::Exact, Precision::Fine, Precision::Fast}) {
      options.precision = precision;
      options.memory_bytes = std::uint64_t{1} << 30;
      Engine resident(path, options);
      ASSERT_TRUE(resident.experts().holds_all());
      const std::vector<float> want = logits(resident, 80);
      options.memory_bytes = resident.plan().floor_bytes() + resident.plan().slot_bytes;
      Engine streamed(path, options);
      ASSERT_FALSE(streamed.experts().holds_all());
      expect_same_bits(want, logits(streamed, 80),
                       fmt::format("{} {}", model, precision_name(precision)));
      EXPECT_GT(streamed.experts().stats().total().misses, 0u);
    }
  }
}

TEST(EngineTest, WhereEverythingFitsEverythingBecomesResident) {
  EngineOptions options = small_options();
  options.preload = true;
  Engine engine(demo(), options);
  EXPECT_EQ(engine.experts().stats().warmed, engine.experts().store().n_experts_total());
  logits(engine, 40);
  EXPECT_EQ(engine.experts().stats().total().misses, 0u);
}

TEST(EngineTest, PreloadFillsACacheThatIsTooSmall) {
  EngineOptions options = small_options();
  options.memory_bytes = floor_of(options) + (2 << 20);
  options.preload = true;
  Engine engine(demo(), options);
  EXPECT_EQ(engine.experts().cache().n_held(), engine.experts().cache().capacity());
}

TEST(EngineTest, AProfileWarmsTheNextStart) {
  const test::TempDir cache;
  EngineOptions options = small_options();
  options.memory_bytes = floor_of(options) + (16 << 20);
  options.profile_directory = cache.path();
  options.lookahead = 0;
  const auto misses_of_a_prompt = [](Engine& engine) {
    logits(engine, 20);
    return engine.experts().stats().total().misses;
  };
  std::uint64_t cold = 0;
  {
    Engine engine(demo(), options);
    EXPECT_EQ(engine.experts().stats().warmed, 0u);
    cold = misses_of_a_prompt(engine);
    engine.save_profile();
  }
  {
    options.preload = true;
    Engine engine(demo(), options);
    EXPECT_EQ(engine.profile_warning(), "");
    EXPECT_EQ(engine.experts().cache().n_held(), engine.experts().cache().capacity());
    EXPECT_LT(misses_of_a_prompt(engine), cold);
  }
  // A damaged profile is a remark, not an error.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(cache.path())) {
    if (entry.is_regular_file()) {
      std::ofstream(entry.path(), std::ios::app) << "garbage";
    }
  }
  Engine engine(demo(), options);
  EXPECT_NE(engine.profile_warning(), "");
}

// Trials begin without prefetches, after some passes: a pass of two rows takes part in them.
TEST(EngineTest, TheGovernorDecidesForPassesOfSeveralRows) {
  EngineOptions options = small_options();
  options.memory_bytes = floor_of(options) + (2 << 20);
  Engine engine(demo(), options);
  const std::vector<TokenId> tokens = test::Random(7).tokens(40, engine.config().n_vocab);
  Session session = engine.new_session();
  bool tried_without = false;
  for (std::size_t at = 0; at < tokens.size(); at += 2) {
    const Span span{.session = &session,
                    .tokens = std::span(tokens).subspan(at, 2),
                    .logits_of = LogitsOf::None};
    const bool off = at > 0 && engine.governor().width() == 0;
    const std::uint64_t prefetched = engine.experts().stats().prefetched;
    engine.run({&span, 1});
    EXPECT_EQ(engine.experts().stats().prefetched == prefetched, off) << at;
    tried_without = tried_without || off;
  }
  EXPECT_TRUE(tried_without);
  EXPECT_TRUE(engine.governor().report().on_trial);
}

TEST(EngineTest, NothingIsKeptWhereThereIsNothingToChoose) {
  const test::TempDir cache;
  EngineOptions options = small_options();
  options.profile_directory = cache.path();
  Engine engine(demo(), options);
  logits(engine, 30);
  engine.save_profile();
  EXPECT_TRUE(std::filesystem::is_empty(cache.path()));
}

TEST(ActivityTest, CountsWhatLayersDid) {
  EngineOptions options = small_options();
  options.memory_bytes = floor_of(options) + (1 << 20);
  options.lookahead = 0;
  Engine engine(demo(), options);
  const Activity before = activity_of(engine);
  logits(engine, 30);
  const Activity done = activity_of(engine) - before;
  EXPECT_EQ(done.tokens, 30u);
  ASSERT_EQ(done.layers.size(), static_cast<std::size_t>(engine.config().n_layers()) + 1);
  EXPECT_EQ(done.layers.back().name, "mtp");
  EXPECT_EQ(done.layers.back().hits + done.layers.back().misses, 0u);
  for (int i = 0; i < engine.config().n_layers(); ++i) {
    const LayerActivity& layer = done.layers[static_cast<std::size_t>(i)];
    EXPECT_EQ(layer.name, std::to_string(i));
    EXPECT_GE(layer.hits + layer.misses, 8u * 10);  // 10 tokens one by one, and a prompt
    EXPECT_GT(layer.compute_ns, 0u);
  }
  const LayerActivity total = done.total();
  EXPECT_EQ(total.hits + total.misses,
            engine.experts().stats().total().hits + engine.experts().stats().total().misses);
  EXPECT_EQ(done.bytes_read, total.bytes);  // nothing was prefetched
}

TEST(BenchTest, MeasuresWhatItSays) {
  Engine engine(demo(), small_options());
  BenchOptions options;
  options.n_prompt = {16, 0};
  options.n_generate = {8};
  options.repetitions = 3;
  options.n_warm_up = 4;
  options.measure_machine = false;
  const std::vector<BenchTest> tests = run_bench(engine, options);
  ASSERT_EQ(tests.size(), 2u);
  EXPECT_EQ(tests[0].name, "pp16");
  EXPECT_EQ(tests[1].name, "tg8");
  for (const BenchTest& test : tests) {
    ASSERT_EQ(test.runs.size(), 3u);
    for (const BenchRun& run : test.runs) {
      EXPECT_EQ(run.activity.tokens, static_cast<std::uint64_t>(test.n_tokens));
      EXPECT_GT(run.seconds, 0);
    }
    EXPECT_GE(test.spread(), 0);
  }
  const BenchBounds bounds = bounds_of(engine, tests[1]);
  EXPECT_GT(bounds.compute_seconds, 0);
  EXPECT_LE(bounds.compute_seconds, bounds.seconds * 1.01);
  options.n_prompt = {100000};
  expect_error(Errc::BadInput, {"100000", "-c"}, [&] { run_bench(engine, options); });
}

TEST(BenchTest, TrafficOfAToken) {
  Engine engine(demo(), small_options());
  const TokenTraffic at_start = token_traffic(engine, 0), later = token_traffic(engine, 100);
  EXPECT_EQ(at_start.weights, later.weights);
  EXPECT_GT(later.state, at_start.state);
  EXPECT_GT(at_start.weights, static_cast<double>(engine.sizes().expert_bytes_per_token()));
}

}  // namespace
}  // namespace moeflux
