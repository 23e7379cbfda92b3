#include "engine/measure/bench.h"

#include <algorithm>
#include <chrono>
#include <random>

#include <fmt/format.h>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/measure/measure_speed.h"
#include "io/measure_reader.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

template <class Pick>
double median_of(const BenchTest& test, Pick pick) {
  std::vector<double> values;
  for (const BenchRun& run : test.runs) values.push_back(pick(run));
  return median(values);
}

class Bench {
 public:
  Bench(Engine& engine, const BenchOptions& options)
      : engine_(engine),
        options_(options),
        session_(engine.new_session()),
        random_(options.seed),
        logits_(static_cast<std::size_t>(engine.config().n_vocab)) {}

  void warm_up() {
    say("warming up");
    session_.reset();
    generate(std::min(options_.n_warm_up, engine_.context_length()));
  }

  // The speed of a machine that others use too changes within seconds: it is measured before, after
  // and in between.
  BenchRun run(const BenchTest& test) {
    constexpr std::int64_t kStretch = 16;  // tokens
    BenchRun result;
    MachineSpeed machine;
    measure(machine);
    session_.reset();
    const Activity before = activity_of(engine_);
    const std::int64_t stretch = test.one_by_one ? kStretch : test.n_tokens;
    for (std::int64_t done = 0; done < test.n_tokens; done += stretch) {
      say(test.name);
      const std::int64_t n = std::min(stretch, test.n_tokens - done);
      const Clock::time_point start = Clock::now();
      if (test.one_by_one) {
        generate(n);
      } else {
        engine_.prefill(session_, tokens(n));
      }
      result.seconds += seconds_since(start);
      measure(machine);
    }
    result.activity = activity_of(engine_) - before;
    result.memory_speed = machine.memory.per_second();
    result.disk_speed = machine.disk.per_second();
    return result;
  }

 private:
  void say(const std::string& what) {
    if (options_.progress) options_.progress(what);
  }

  std::vector<TokenId> tokens(std::int64_t n) {
    std::uniform_int_distribution<TokenId> any(0,
                                               static_cast<TokenId>(engine_.config().n_vocab - 1));
    std::vector<TokenId> all(static_cast<std::size_t>(n));
    for (TokenId& token : all) token = any(random_);
    return all;
  }

  void generate(std::int64_t n) {
    for (const TokenId token : tokens(n)) {
      const Span span{.session = &session_, .tokens = {&token, 1}, .logits = logits_.data()};
      engine_.run({&span, 1});
    }
  }

  // Of several measurements, each counted by how long it took.
  struct MachineSpeed {
    struct Mean {
      double amount = 0, seconds = 0;
      void add(double per_second, double for_seconds) {
        amount += per_second * for_seconds;
        seconds += for_seconds;
      }
      double per_second() const { return seconds > 0 ? amount / seconds : 0; }
    };
    Mean memory, disk;
  };

  void measure(MachineSpeed& machine) {
    if (!options_.measure_machine) return;
    const ExpertStore& store = engine_.experts().store();
    const bool streams = !engine_.experts().holds_all() && store.n_experts_total() > 0;
    say("measuring memory");
    constexpr double kSeconds = 0.15;
    // The weights themselves, where they are more than caches hold: measuring then takes no memory.
    constexpr std::size_t kFarMoreThanCaches = std::size_t{512} << 20;
    const Buffer& weights = engine_.weights().memory();
    const bool in_weights = weights.host() != nullptr && weights.bytes() >= kFarMoreThanCaches;
    const MemorySpeed memory_speed = measure_memory(
        engine_.backend().n_threads(),
        {.bytes = static_cast<std::size_t>(
             std::min<std::uint64_t>(kFarMoreThanCaches, engine_.memory().available())),
         .seconds = kSeconds,
         .memory = in_weights ? std::span<const std::byte>(weights.host(), kFarMoreThanCaches)
                              : std::span<const std::byte>()});
    machine.memory.add(memory_speed.bytes_per_second, kSeconds);
    if (!streams) return;
    say("measuring the drive");
    MeasureOptions measure;
    measure.record_bytes = store.read_bytes({0, 0});
    measure.records_in_flight = engine_.experts().reads_at_once();
    measure.max_seconds = 0.3;
    measure.seed = random_();
    measure.memory_bytes = kMeasuringBytes;
    measure.register_memory = false;
    const ReadSpeed speed =
        measure_reader(store.source().disk_paths(), engine_.reader_options(), measure);
    machine.disk.add(speed.bytes_per_second(), speed.seconds);
  }

  Engine& engine_;
  const BenchOptions& options_;
  Session session_;
  std::mt19937_64 random_;
  std::vector<float> logits_;
};

}  // namespace

double BenchTest::median_seconds() const {
  return median_of(*this, [](const BenchRun& run) { return run.seconds; });
}

double BenchTest::spread() const {
  const auto [least, most] = std::minmax_element(
      runs.begin(), runs.end(),
      [](const BenchRun& a, const BenchRun& b) { return a.seconds < b.seconds; });
  return (most->seconds - least->seconds) / median_seconds();
}

TokenTraffic token_traffic(const Engine& engine, std::int64_t length) {
  const ModelConfig& config = engine.config();
  const KvType kv_type = engine.kv_type();
  const auto per_position = static_cast<double>(Session::bytes_per_position(config, kv_type));
  const auto fixed = static_cast<double>(Session::bytes_needed(config, {0, kv_type}));
  return {.weights = static_cast<double>(engine.sizes().dense_bytes_per_token +
                                         engine.sizes().expert_bytes_per_token()),
          .state = 2 * fixed + per_position * static_cast<double>(length)};
}

BenchBounds bounds_of(const Engine& engine, const BenchTest& test) {
  const auto n = static_cast<double>(test.n_tokens);
  const double memory = median_of(test, [](const BenchRun& run) { return run.memory_speed; });
  const double disk = median_of(test, [](const BenchRun& run) { return run.disk_speed; });
  const auto per_token = [&](auto pick) { return median_of(test, pick) / n; };
  BenchBounds bounds;
  bounds.seconds = test.median_seconds() / n;
  if (memory > 0) {
    bounds.memory_seconds = token_traffic(engine, test.n_tokens / 2).total() / memory;
  }
  bounds.bytes_missed = per_token([](const BenchRun& run) {
    const LayerActivity total = run.activity.total();
    const double record =
        total.misses > 0
            ? static_cast<double>(total.bytes) / static_cast<double>(total.misses)
            : static_cast<double>(run.activity.bytes_read) /
                  static_cast<double>(std::max<std::uint64_t>(run.activity.prefetched, 1));
    return static_cast<double>(total.bytes) +
           record * static_cast<double>(run.activity.prefetches_used);
  });
  bounds.bytes_read =
      per_token([](const BenchRun& run) { return static_cast<double>(run.activity.bytes_read); });
  if (disk > 0) bounds.disk_seconds = bounds.bytes_missed / disk;
  bounds.hit_rate = median_of(test, [](const BenchRun& run) {
    const LayerActivity total = run.activity.total();
    const auto asked = static_cast<double>(total.hits + total.misses);
    const auto held = static_cast<double>(total.hits - run.activity.prefetches_used);
    return asked > 0 ? held / asked : 1.0;
  });
  bounds.wait_seconds = per_token(
      [](const BenchRun& run) { return static_cast<double>(run.activity.total().wait_ns) * 1e-9; });
  bounds.drive_busy_seconds = per_token(
      [](const BenchRun& run) { return static_cast<double>(run.activity.drive_busy_ns) * 1e-9; });
  bounds.compute_seconds = per_token([](const BenchRun& run) {
    return static_cast<double>(run.activity.total().compute_ns) * 1e-9;
  });
  return bounds;
}

std::vector<TimeShare> time_shares(const BenchTest& test) {
  std::vector<TimeShare> shares;
  if (test.runs.empty()) return shares;
  const auto n = static_cast<double>(test.n_tokens);
  double counted = 0;
  const auto add = [&](std::string what, auto pick) {
    const double seconds = median_of(test, pick) / n;
    counted += seconds;
    if (seconds > 0) shares.push_back({std::move(what), seconds});
  };
  for (std::size_t i = 0; i < test.runs[0].activity.ops.size(); ++i) {
    add(std::string(test.runs[0].activity.ops[i].name),
        [i](const BenchRun& run) { return static_cast<double>(run.activity.ops[i].ns) * 1e-9; });
  }
  add("drive_wait",
      [](const BenchRun& run) { return static_cast<double>(run.activity.total().wait_ns) * 1e-9; });
  const double rest = test.median_seconds() / n - counted;
  if (rest > 0) shares.push_back({"other", rest});
  std::stable_sort(shares.begin(), shares.end(),
                   [](const TimeShare& a, const TimeShare& b) { return a.seconds > b.seconds; });
  return shares;
}

std::vector<BenchTest> run_bench(Engine& engine, const BenchOptions& options) {
  std::vector<BenchTest> tests;
  const auto add = [&](const char* prefix, const std::vector<std::int64_t>& sizes,
                       bool one_by_one) {
    for (const std::int64_t n : sizes) {
      if (n <= 0) continue;
      if (n > engine.context_length()) {
        fail(Errc::BadInput, "{} tokens do not fit into a context of {} (raise it with -c)", n,
             engine.context_length());
      }
      tests.push_back({fmt::format("{}{}", prefix, n), one_by_one, n, {}});
    }
  };
  add("pp", options.n_prompt, false);
  add("tg", options.n_generate, true);

  Bench bench(engine, options);
  bench.warm_up();
  for (int i = 0; i < options.repetitions; ++i) {  // interleaved: a slow moment hits all tests
    for (BenchTest& test : tests) test.runs.push_back(bench.run(test));
  }
  return tests;
}

}  // namespace moeflux
