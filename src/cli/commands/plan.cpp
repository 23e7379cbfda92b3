// moeflux plan: what a model needs, and what it would do with a budget, without loading it.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/memory_limits.h"
#include "base/processors.h"
#include "cli/commands/commands.h"
#include "cli/options/environment.h"
#include "cli/options/general_options.h"
#include "cli/options/model_argument.h"
#include "cli/reports/plan_report.h"
#include "engine/measure/doctor.h"
#include "engine/measure/measure_kernels.h"
#include "io/make_reader.h"
#include "quant/panels.h"

namespace moeflux::cli {
namespace {

struct PlanArguments {
  ModelOptions model;
  GeneralOptions general;
  std::optional<double> disk, memory;  // GB/s
  bool json = false;
};

std::uint64_t budget_of(const ModelOptions& options) {
  if (options.ram) return parse_size(*options.ram, "--ram");
  return default_ram_budget(read_memory_limits());
}

double given_speed(double gigabytes, const char* option) {
  if (!(gigabytes > 0 && gigabytes <= 1e6)) {
    throw UsageError(fmt::format("{}: a speed in GB/s, more than 0", option));
  }
  return gigabytes * 1e9;
}

// A drive that cannot be measured has no speed; the plan is still worth showing.
double disk_speed(const std::string& path, const GeneralOptions& general) {
  try {
    const ModelOnDisk model = inspect_model(path);
    if (model.files.empty()) return 0;
    MeasureOptions measure;
    measure.max_seconds = 1;
    std::uint64_t largest = 1;
    for (const std::string& file : model.files) largest = std::max(largest, File(file).size());
    measure.record_bytes = std::clamp<std::uint64_t>(model.expert_bytes, 1, largest);
    return calibrate_reader(model.files, {}, measure).speed.bytes_per_second();
  } catch (const Error& error) {
    general.note(fmt::format("the drive could not be measured: {}", error.what()));
    return 0;
  }
}

std::uint64_t spare_memory() {
  return usable_memory(read_memory_limits()) / 8;
}

double memory_speed(const std::optional<std::int64_t>& threads) {
  const auto n =
      static_cast<int>(std::clamp<std::int64_t>(threads.value_or(default_thread_count()), 1, 1024));
  MemoryMeasureOptions measure;
  measure.seconds = 0.2;
  measure.bytes = std::min<std::uint64_t>(measure.bytes, spare_memory());
  return measure_memory(n, measure).bytes_per_second;
}

// With the weights that most of a token's time goes into.
double kernel_speed(const ModelDescription& model, const ModelOptions& options) {
  const auto backend = make_backend({.isa = environment().isa.value_or(""),
                                     .n_threads = thread_count(options),
                                     .precision = parse_precision(options)});
  const std::vector<ExpertBank>& experts = model.index.experts;
  const StoredMatrix weights =
      experts.empty() ? model.index.tensors.head : experts.front().gate.at(0);
  KernelMeasureOptions measure;
  measure.bytes = std::min<std::uint64_t>(measure.bytes, spare_memory());
  return measure_kernels(*backend, weights.format, model.config.d_model, measure);
}

PlannedBudget evaluate(const std::string& name, const ModelConfig& config, const PlanReport& report,
                       const PlanOptions& options) {
  return {name, plan_memory(config, report.sizes, options),
          forecast(config, report.sizes, options, report.speed)};
}

PlanReport make_report(const PlanArguments& options, const std::string& path) {
  const std::shared_ptr<const ModelSource> source = open_source(path);
  const ModelDescription model = describe_model(*source);
  const ModelConfig& config = model.config;
  PlanReport report;
  report.model = path;
  report.family = model.family->name;
  report.layout = layout_name(source->layout());
  if (options.model.context && *options.model.context < 1) {
    throw UsageError("--ctx-size must be at least 1");
  }
  report.context_length = std::min<std::int64_t>(options.model.context.value_or(kDefaultContext),
                                                 config.context_length);
  remark_on_context(options.model, config.context_length, options.general);
  report.kv_type = parse_kv_type(options.model);
  const int n_threads = thread_count_or_default(thread_count(options.model));
  report.sizes =
      measure_sizes(*source, model, ExpertStore(source, model.index.experts).slot_bytes());
  report.measured = !options.disk && !options.memory;
  report.speed.disk =
      options.disk ? given_speed(*options.disk, "--disk") : disk_speed(path, options.general);
  report.speed.memory = options.memory ? given_speed(*options.memory, "--memory")
                                       : memory_speed(options.model.threads);
  if (!options.memory) report.speed.kernels = kernel_speed(model, options.model);

  PlanOptions plan{.memory_bytes = budget_of(options.model),
                   .context_length = report.context_length,
                   .kv_type = report.kv_type,
                   .max_batch = options.model.batch.value_or(0),
                   .reader_bytes = make_reader(source->disk_paths())->info().memory_bytes,
                   .n_threads = n_threads};
  report.budget = evaluate("budget", config, report, plan);
  for (const auto& [name, share] : {std::pair("floor", 0.0), std::pair("25 %", 0.25),
                                    std::pair("50 %", 0.5), std::pair("all", 1.0)}) {
    report.budgets.push_back(
        evaluate(name, config, report, with_cached_share(config, report.sizes, plan, share)));
  }
  report.recommended_bytes = recommended_bytes(config, report.sizes, plan, report.speed);
  return report;
}

int run(const PlanArguments& options, const std::vector<std::string>& arguments) {
  const PlanReport report = make_report(options, only_model(options.model, arguments));
  write_stdout(options.json ? dump_json(to_json(report), 2) + "\n"
                            : to_text(report, options.general.color_on_stdout()));
  return kSuccess;
}

}  // namespace

void add_plan_command(CommandLine& line) {
  const auto options = std::make_shared<PlanArguments>();
  Command& command =
      line.add("plan", "Show the memory a model needs and how fast it can be with it.");
  command.arguments("[MODEL]", 1);
  add_model_option(command, options->model);
  add_machine_options(command, options->model);
  command.spelling("--ctx", "--ctx-size");
  command.group("Speed")
      .option("--disk", options->disk, "GB/S", "of the drive (default: measured)")
      .option("--memory", options->memory, "GB/S", "of memory (default: measured)");
  command.group("Output").flag("--json", options->json, "print JSON");
  add_general_options(command, options->general);
  command.example("plan /data/qwen --ram 16G")
      .example("plan --json /data/qwen | jq .floor_bytes")
      .example("plan /data/qwen --ram 96G --disk 7 --memory 80");
  command.note("No weight is loaded. With --disk and --memory the plan is for another machine.");
  command.run(
      [options](const std::vector<std::string>& arguments) { return run(*options, arguments); });
}

}  // namespace moeflux::cli
