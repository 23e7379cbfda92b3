// moeflux bench: how fast a model runs here, and how fast it could.
#include "engine/measure/bench.h"

#include <algorithm>
#include <memory>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

struct BenchArguments {
  ModelOptions model;
  GeneralOptions general;
  std::string n_prompt = "512", n_generate = "128";
  std::optional<std::string> threads, ram;
  std::int64_t repetitions = 5, warm_up = 64, seed = 1;
  std::string output = "md";
  bool cold = false, no_measure = false, kernels = false;
};

std::vector<std::int64_t> numbers(const std::string& text, const char* option) {
  std::vector<std::int64_t> values;
  for (const std::string& part : split(text, ',')) {
    const auto value = to_number<std::int64_t>(part);
    if (value.value_or(-1) < 0)
      throw UsageError(fmt::format("{}: \"{}\" is not a list of numbers", option, text));
    values.push_back(*value);
  }
  return values;
}

// One row of the result.
struct Row {
  std::string model, backend, precision, ram;
  std::uint64_t ceiling = 0;
  std::size_t n_slots = 0;
  std::uint64_t n_experts = 0;
  std::uint64_t record_bytes = 0;  // of one read of an expert
  BenchTest test;
  BenchBounds bounds;
  double memory_speed = 0, disk_speed = 0;
  double traffic = 0;
  std::string lookahead;
  int reads_at_once = 0;
};

double median_speed(const BenchTest& test, double BenchRun::*speed) {
  std::vector<double> values;
  for (const BenchRun& run : test.runs) values.push_back(run.*speed);
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

Json to_json(const Row& row) {
  Json seconds = Json::array();
  for (const BenchRun& run : row.test.runs) seconds.push_back(run.seconds);
  Json json = {{"model", row.model},
               {"backend", row.backend},
               {"precision", row.precision},
               {"memory_ceiling", row.ceiling},
               {"cache_slots", row.n_slots},
               {"experts", row.n_experts},
               {"test", row.test.name},
               {"n_tokens", row.test.n_tokens},
               {"seconds", seconds},
               {"tokens_per_second", row.test.tokens_per_second()},
               {"spread", row.test.spread()},
               {"memory_bytes_per_second", row.memory_speed},
               {"disk_bytes_per_second", row.disk_speed},
               {"reads_at_once", row.reads_at_once},
               {"hit_rate", row.bounds.hit_rate},
               {"bytes_missed_per_token", row.bounds.bytes_missed},
               {"bytes_read_per_token", row.bounds.bytes_read},
               {"bytes_per_record", row.record_bytes},
               {"wait_seconds_per_token", row.bounds.wait_seconds},
               {"drive_busy_seconds_per_token", row.bounds.drive_busy_seconds},
               {"compute_seconds_per_token", row.bounds.compute_seconds},
               {"lookahead", row.lookahead}};
  Json shares = Json::object();
  for (const TimeShare& share : time_shares(row.test)) shares[share.what] = share.seconds;
  json["seconds_per_token_by_operation"] = shares;
  if (row.test.one_by_one) {
    json["bytes_per_token"] = row.traffic;
    json["memory_bound_seconds"] = row.bounds.memory_seconds;
    json["disk_bound_seconds"] = row.bounds.disk_seconds;
  }
  return json;
}

// The share of the memory bound that is reached, "-" where that is not what bounds.
std::string of_memory(const Row& row) {
  if (!row.test.one_by_one || row.memory_speed == 0) return "-";
  return fmt::format("{:.0f} %", 100 * row.bounds.memory_seconds / row.bounds.seconds);
}
std::string of_disk(const Row& row) {
  if (!row.test.one_by_one || row.bounds.disk_seconds == 0) return "-";
  return fmt::format("{:.0f} %", 100 * row.bounds.disk_seconds / row.bounds.seconds);
}

std::string in_gb(double bytes) {
  return bytes > 0 ? fmt::format("{:.2f}", bytes * 1e-9) : "-";
}

const std::vector<std::string> kColumns{
    "test",          "ram",         "tok/s",           "spread",
    "ms/token",      "memory GB/s", "of memory bound", "hit rate",
    "read MB/token", "disk GB/s",   "of disk bound",   "wait ms",
    "compute ms"};

std::vector<std::string> cells(const Row& row) {
  const double per_token = 1e3 * row.test.median_seconds() / static_cast<double>(row.test.n_tokens);
  return {row.test.name,
          row.ram,
          fmt::format("{:.2f}", row.test.tokens_per_second()),
          fmt::format("{:.0f} %", 100 * row.test.spread()),
          fmt::format("{:.1f}", per_token),
          in_gb(row.memory_speed),
          of_memory(row),
          fmt::format("{:.1f} %", 100 * row.bounds.hit_rate),
          fmt::format("{:.0f}", row.bounds.bytes_read * 1e-6),
          in_gb(row.disk_speed),
          of_disk(row),
          fmt::format("{:.1f}", 1e3 * row.bounds.wait_seconds),
          fmt::format("{:.1f}", 1e3 * row.bounds.compute_seconds)};
}

std::string table(const std::vector<Row>& rows, const std::string& kind) {
  std::string text;
  const auto line = [&](const std::vector<std::string>& values) {
    if (kind == "csv") return fmt::format("{}\n", fmt::join(values, ","));
    return fmt::format("| {} |\n", fmt::join(values, " | "));
  };
  if (kind == "md" && !rows.empty()) {
    text += fmt::format("{} on {}, {}\n\n", rows[0].model, rows[0].backend, rows[0].precision);
  }
  text += line(kColumns);
  if (kind == "md") {
    text += "|";
    for (std::size_t i = 0; i < kColumns.size(); ++i) text += " ---: |";
    text += "\n";
  }
  for (const Row& row : rows) text += line(cells(row));
  if (kind == "md") {
    for (const Row& row : rows) {
      text += fmt::format("\n{}, ms/token by operation: ", row.test.name);
      std::vector<std::string> parts;
      for (const TimeShare& share : time_shares(row.test)) {
        parts.push_back(fmt::format("{} {:.2f}", share.what, 1e3 * share.seconds));
      }
      text += fmt::format("{}\n", fmt::join(parts, ", "));
    }
  }
  return text;
}

BenchOptions bench_options(const BenchArguments& options) {
  BenchOptions bench;
  bench.n_prompt = numbers(options.n_prompt, "-p");
  bench.n_generate = numbers(options.n_generate, "-n");
  if (options.repetitions < 1 || options.repetitions > 1000) {
    throw UsageError("--repetitions must be from 1 to 1000");
  }
  if (options.warm_up < 0) throw UsageError("--warm-up must be 0 or more");
  bench.repetitions = static_cast<int>(options.repetitions);
  bench.n_warm_up = options.cold ? 0 : options.warm_up;
  bench.seed = static_cast<std::uint64_t>(options.seed);
  bench.measure_machine = !options.no_measure;
  return bench;
}

// What takes longest first.
std::string kernel_table(std::vector<KernelTime> times) {
  std::sort(times.begin(), times.end(),
            [](const KernelTime& a, const KernelTime& b) { return a.seconds > b.seconds; });
  std::string table = "| kernel | calls | ms | us a call |\n|---|---|---|---|\n";
  for (const KernelTime& time : times) {
    table += fmt::format("| {} | {} | {:.2f} | {:.2f} |\n", time.name, time.calls,
                         1e3 * time.seconds, 1e6 * time.seconds / static_cast<double>(time.calls));
  }
  return table;
}

void bench_engine(const BenchArguments& options, const std::string& path, const ModelOptions& model,
                  std::vector<Row>& rows) {
  const BenchOptions base = bench_options(options);
  const auto engine = open_engine(path, model, options.general);
  BenchOptions bench = base;
  bench.progress = [&](const std::string& what) {
    throw_if_interrupted();
    options.general.detail(what);
  };
  if (options.kernels) engine->backend().time_kernels();
  for (BenchTest& test : run_bench(*engine, bench)) {
    Row row;
    row.model = path;
    row.backend = engine->backend().name();
    row.precision = precision_name(engine->precision());
    row.ram = format_bytes(engine->memory().ceiling());
    row.ceiling = engine->memory().ceiling();
    row.n_slots = engine->experts().cache().capacity();
    row.n_experts = engine->experts().store().n_experts_total();
    if (row.n_experts > 0) row.record_bytes = engine->experts().store().read_bytes({0, 0});
    row.bounds = bounds_of(*engine, test);
    row.traffic = token_traffic(*engine, test.n_tokens / 2).total();
    row.memory_speed = median_speed(test, &BenchRun::memory_speed);
    row.disk_speed = median_speed(test, &BenchRun::disk_speed);
    row.lookahead = engine->governor().describe();
    row.reads_at_once = engine->experts().reads_at_once();
    row.test = std::move(test);
    rows.push_back(std::move(row));
  }
  if (options.kernels) write_stdout(kernel_table(engine->backend().kernel_times()));
}

int run(const BenchArguments& options, const std::vector<std::string>& arguments) {
  const BenchOptions checked = bench_options(options);
  std::int64_t longest = 16;
  for (const std::int64_t n : checked.n_prompt) longest = std::max(longest, n);
  for (const std::int64_t n : checked.n_generate) longest = std::max(longest, n);
  const std::string path = only_model(options.model, arguments);
  const InterruptGuard guard;
  std::vector<Row> rows;
  for (const std::string& threads :
       options.threads ? split(*options.threads, ',') : std::vector<std::string>{"0"}) {
    for (const std::string& ram :
         options.ram ? split(*options.ram, ',') : std::vector<std::string>{""}) {
      ModelOptions model = options.model;
      model.threads = numbers(threads, "-t")[0];
      if (!ram.empty()) model.ram = ram;
      if (!model.context) model.context = longest;
      model.no_profile = true;  // figures must not depend on what ran before
      if (!options.cold) model.preload = true;
      if (checked.measure_machine) model.other_bytes = kMeasuringBytes;
      bench_engine(options, path, model, rows);
    }
  }
  if (options.output == "json") {
    Json json = Json::array();
    for (const Row& row : rows) json.push_back(to_json(row));
    write_stdout(dump_json(json, 2) + "\n");
  } else {
    write_stdout(table(rows, options.output));
  }
  return kSuccess;
}

}  // namespace

void add_bench_command(CommandLine& line) {
  const auto options = std::make_shared<BenchArguments>();
  Command& command = line.add("bench", "Measure the speed of a model and what bounds it.");
  command.arguments("[MODEL]", 1);
  command.group("Test")
      .option("-p,--n-prompt", options->n_prompt, "N,...", "tokens of the prompts (default: 512)")
      .option("-n,--n-gen", options->n_generate, "N,...",
              "single tokens in a row (default: 128); 0: none")
      .option("-r,--repetitions", options->repetitions, "N", "times each test runs (default: 5)")
      .option("--warm-up", options->warm_up, "N", "single tokens beforehand (default: 64)")
      .option("--seed", options->seed, "N", "of the random tokens (default: 1)")
      .flag("--cold", options->cold, "no warm-up: the cache starts empty")
      .flag("--no-measure", options->no_measure, "do not measure memory and drive in between")
      .flag("--kernels", options->kernels, "time each kernel of a GPU by itself, and slower");
  add_model_option(command, options->model);
  command.group("Model")
      .option("-c,--ctx-size", options->model.context, "N", "tokens of context (default: enough)")
      .option("-t,--threads", options->threads, "N,...", "threads (default: one per physical core)")
      .option("--ram", options->ram, "SIZE,...", "ceiling for memory (default: what is free)");
  add_device_options(command, options->model);
  add_precision_options(command, options->model);
  add_streaming_options(command, options->model);
  command.group("Output")
      .option("-o,--output", options->output, "KIND", "md, csv or json (default: md)")
      .choices({"md", "csv", "json"});
  add_general_options(command, options->general);
  command.example("bench models/demo -p 64 -n 32")
      .example("bench /data/qwen -p 512,4096 -n 128 -r 5 --ram 6G,12G")
      .example("bench /data/qwen -t 1,2,4 -p 0 -n 64 -o json");
  command.note("Tokens are random, which is the worst case of an expert cache.")
      .note("Bounds: bytes per token over the speed of memory, and bytes missed over the speed of")
      .note("the drive, both measured before, after and between tokens.");
  command.run(options, run);
}

}  // namespace moeflux::cli
