// moeflux plan: what a model needs, and what it would do with a budget, without loading it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory_budget.h"
#include "base/memory_limits.h"
#include "base/processors.h"
#include "cli/commands/commands.h"
#include "cli/commands/plan_sources.h"
#include "cli/options/environment.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "cli/terminal/terminal.h"
#include "engine/measure/doctor.h"
#include "engine/measure/forecast.h"
#include "engine/measure/measure_speed.h"
#include "io/make_reader.h"
#include "quant/interleave.h"

namespace moeflux::cli {
namespace {

// One budget and what it is worth.
struct PlannedBudget {
  std::string name;  // "floor", "25 %", "all", "budget"
  MemoryPlan plan;
  Forecast forecast;
};

struct PlanReport {
  std::string model;  // as it was given
  std::string family;
  std::string layout;
  std::int64_t context_length = 0;
  KvType kv_type = KvType::F32;
  ModelSizes sizes;
  MachineSpeed speed;
  bool measured = false;  // as opposed to given by options
  std::uint64_t recommended_bytes = 0;
  PlannedBudget budget;                // the one that was asked for, or what this machine has
  std::vector<PlannedBudget> budgets;  // for comparison
};

constexpr const char* kHow =
    "uniform: every expert equally likely, the worst case; typical: a curve fitted to published "
    "hit "
    "rates of conversations about one topic; mixed_topics: an eighth less";

Json number_json(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

std::string rate_text(double tokens_per_second) {
  if (!std::isfinite(tokens_per_second)) return "-";
  return fmt::format("{:.{}f}", tokens_per_second, tokens_per_second < 10 ? 2 : 0);
}

std::string size_text(double bytes) {
  return format_bytes(static_cast<std::uint64_t>(bytes));
}

Json hit_rates_json(const HitRates& rates) {
  return {{"uniform", rates.uniform}, {"typical", rates.typical}, {"mixed_topics", rates.mixed}};
}

Json budget_json(const PlannedBudget& budget) {
  const MemoryPlan& plan = budget.plan;
  const Forecast& forecast = budget.forecast;
  return {{"name", budget.name},
          {"bytes", plan.ceiling},
          {"fits", plan.fits()},
          {"used_bytes", plan.used_bytes()},
          {"cache_slots", plan.n_slots},
          {"cache_bytes", plan.cache_bytes},
          {"hit_rate_expected", hit_rates_json(forecast.hit_rates)},
          {"disk_bytes_per_token", forecast.disk_bytes_per_token},
          {"disk_bound", forecast.typical.disk_bound()},
          {"expected_tok_s", number_json(forecast.typical.tokens_per_second())},
          {"expected_tok_s_serial", number_json(forecast.typical.serial_tokens_per_second())},
          {"expected_tok_s_uniform", number_json(forecast.uniform.tokens_per_second())},
          {"expected_tok_s_mixed_topics", number_json(forecast.mixed.tokens_per_second())},
          {"prefill_tok_s_disk", number_json(forecast.prefill_tokens_per_second)}};
}

struct Placement {
  const char* where;
  const char* what;
  std::uint64_t bytes;
  std::string remark;
};

std::vector<Placement> placements(const PlanReport& report) {
  const MemoryPlan& plan = report.budget.plan;
  std::vector<Placement> all = {
      {"memory", "dense weights", plan.dense_bytes, ""},
      {"memory", "context", plan.context_bytes,
       fmt::format("{} tokens, {}", report.context_length, kv_type_name(report.kv_type))},
      {"memory", "scratch", plan.scratch_bytes(),
       fmt::format("passes of {} tokens", plan.max_batch)},
      {"memory", "expert cache", plan.cache_bytes,
       fmt::format("{} of {} experts", plan.n_slots, plan.max_slots)},
      {"drive", "routed experts", report.sizes.expert_bytes_total, ""}};
  all.push_back({"memory", "program", plan.program_bytes, "code, tokenizer, index"});
  if (plan.tier_bytes > 0)
    all.push_back(
        {"memory", "tier", plan.tier_bytes, "of pinned memory, between device and drive"});
  if (plan.reader_bytes > 0) all.push_back({"memory", "reader", plan.reader_bytes, "buffers"});
  return all;
}

std::string budget_rows(const PlanReport& report) {
  std::string text = fmt::format("  {:<10}{:>11}{:>10}{:>11}{:>13}{:>9}  {}\n", "budget", "memory",
                                 "cached", "hit rate", "drive/token", "tok/s", "limited by");
  std::vector<PlannedBudget> rows;
  for (const PlannedBudget& each : report.budgets) {
    // Of a small model, what long passes take holds all experts already.
    if (each.plan.n_slots < each.plan.max_slots || each.name == "all") rows.push_back(each);
  }
  rows.push_back(report.budget);
  for (const PlannedBudget& row : rows) {
    const MemoryPlan& plan = row.plan;
    const double cached = plan.max_slots == 0 ? 1.0
                                              : static_cast<double>(plan.n_slots) /
                                                    static_cast<double>(plan.max_slots);
    text +=
        fmt::format("  {:<10}{:>11}{:>8.1f} %{:>9.1f} %{:>13}{:>9}  {}\n", row.name,
                    format_bytes(plan.ceiling), 100 * cached, 100 * row.forecast.hit_rates.typical,
                    size_text(row.forecast.disk_bytes_per_token),
                    rate_text(row.forecast.typical.tokens_per_second()),
                    !plan.fits()                        ? "too small"
                    : row.forecast.typical.disk_bound() ? "drive"
                                                        : "memory");
  }
  return text;
}

Json to_json(const PlanReport& report) {
  const MemoryPlan& plan = report.budget.plan;
  const Forecast& forecast = report.budget.forecast;
  Json hit_rates = hit_rates_json(forecast.hit_rates);
  hit_rates["how"] = kHow;
  Json where = Json::array();
  for (const Placement& each : placements(report)) {
    where.push_back({{"where", each.where}, {"what", each.what}, {"bytes", each.bytes}});
  }
  Json budgets = Json::array();
  for (const PlannedBudget& each : report.budgets) budgets.push_back(budget_json(each));
  return {{"model", report.model},
          {"family", report.family},
          {"layout", report.layout},
          {"context", report.context_length},
          {"ram_bytes", plan.ceiling},
          {"fits", plan.fits()},
          {"floor_bytes", plan.floor_bytes()},
          {"recommended_bytes", report.recommended_bytes},
          {"all_bytes", plan.all_bytes()},
          {"dense_bytes", plan.dense_bytes},
          {"kv_type", kv_type_name(report.kv_type)},
          {"kv_bytes", plan.context_bytes},
          {"scratch_bytes", plan.scratch_bytes()},
          {"reader_bytes", plan.reader_bytes},
          {"tier_bytes", plan.tier_bytes},
          {"expert_bytes_total", report.sizes.expert_bytes_total},
          {"experts_total", plan.max_slots},
          {"slot_bytes", plan.slot_bytes},
          {"min_slots", plan.min_slots},
          {"cache_slots", plan.n_slots},
          {"cache_bytes", plan.cache_bytes},
          {"hit_rate_expected", std::move(hit_rates)},
          {"bytes_per_token",
           {{"total", forecast.bytes.total()},
            {"dense", forecast.bytes.dense},
            {"experts", forecast.bytes.experts},
            {"context", forecast.bytes.context},
            {"from_disk", forecast.disk_bytes_per_token}}},
          {"disk_gbps", report.speed.disk / 1e9},
          {"memory_gbps", report.speed.memory / 1e9},
          {"kernel_gbps", report.speed.kernels / 1e9},
          {"speeds_measured", report.measured},
          {"expected_tok_s", number_json(forecast.typical.tokens_per_second())},
          {"expected_tok_s_serial", number_json(forecast.typical.serial_tokens_per_second())},
          {"placement", std::move(where)},
          {"budget", budget_json(report.budget)},
          {"budgets", std::move(budgets)}};
}

std::string to_text(const PlanReport& report, bool color) {
  const MemoryPlan& plan = report.budget.plan;
  const TokenBytes& bytes = report.budget.forecast.bytes;
  std::string text;
  const auto line = [&](const char* what, const std::string& value) {
    text += fmt::format("{:<14}{}\n", what, value);
  };
  line("model", fmt::format("{}, {} ({})", report.model, report.family, report.layout));
  line("floor", format_needed_bytes(plan.floor_bytes()));
  line("recommended", format_needed_bytes(report.recommended_bytes));
  line("budget", format_bytes(plan.ceiling) +
                     (plan.fits() ? "" : styled(" (below the floor)", Style::Red, color)));
  line("a token reads", fmt::format("{}: {} of dense weights, {} of experts, {} of context",
                                    size_text(bytes.total()), size_text(bytes.dense),
                                    size_text(bytes.experts), size_text(bytes.context)));
  const std::string kernels = report.speed.kernels > 0
                                  ? fmt::format(", kernels {:.1f} GB/s", report.speed.kernels / 1e9)
                                  : "";
  line("speeds",
       fmt::format("drive {:.2f} GB/s, memory {:.1f} GB/s{} ({})", report.speed.disk / 1e9,
                   report.speed.memory / 1e9, kernels, report.measured ? "measured" : "as given"));
  text += "\nwhere things go\n";
  for (const Placement& each : placements(report)) {
    text += fmt::format("  {:<10}{:<16}{:>11}{}{}\n", each.where, each.what,
                        format_bytes(each.bytes), each.remark.empty() ? "" : "   ", each.remark);
  }
  text += "\nwhat memory is worth\n" + budget_rows(report);
  text +=
      "\nTok/s are upper bounds: reading and computing overlap perfectly, and memory or the "
      "kernels\n"
      "are the limit of computing. Hit rates are typical of a conversation about one topic, some "
      "thousand "
      "tokens\n"
      "long; mixed topics have less.\n";
  return text;
}

struct PlanArguments {
  ModelOptions model;
  GeneralOptions general;
  std::optional<double> disk, memory;  // GB/s
  std::optional<std::string> like;
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

// Of the drive that a model would be put on.
double disk_speed_of(const std::string& directory, const GeneralOptions& general) {
  try {
    const TestFile file(directory, {.bytes = std::uint64_t{256} << 20, .max_seconds = 2});
    MeasureOptions measure;
    measure.max_seconds = 1;
    measure.record_bytes = std::min<std::uint64_t>(std::uint64_t{2} << 20, file.bytes());
    return calibrate_reader({file.path()}, {}, measure).speed.bytes_per_second();
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

PlanReport make_report(const PlanArguments& options, const PlannedModel& planned) {
  const std::shared_ptr<const ModelSource> source = open_source(planned.path);
  const ModelDescription model = describe_model(*source);
  const ModelConfig& config = model.config;
  PlanReport report;
  report.model = planned.name;
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
  report.sizes = measure_sizes(*source, model, ExpertStore(source, model.index.experts).classes());
  report.measured = !options.disk && !options.memory;
  report.speed.disk = options.disk       ? given_speed(*options.disk, "--disk")
                      : planned.on_drive ? disk_speed(planned.path, options.general)
                                         : disk_speed_of(planned.drive, options.general);
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

PlannedModel model_to_plan(const PlanArguments& options,
                           const std::vector<std::string>& arguments) {
  if (options.like) {
    if (options.model.model || !arguments.empty())
      throw UsageError("--like names a shape, and there is a model as well; give one of the two");
    return shape_to_plan(*options.like, options.model);
  }
  const std::optional<std::string> word =
      arguments.empty() ? options.model.model : std::optional(arguments[0]);
  if (word && (arguments.empty() || !options.model.model) &&
      !find_named_model(options.model, *word)) {
    if (auto planned = hub_model_to_plan(*word, options.general)) return *planned;
  }
  const std::string path = only_model(options.model, arguments);
  return {.path = path, .name = path, .on_drive = true, .drive = {}};
}

int run(const PlanArguments& options, const std::vector<std::string>& arguments) {
  const PlanReport report = make_report(options, model_to_plan(options, arguments));
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
  command.group("Model").option("--like", options->like, "SHAPE",
                                "a released model by its shape, as synth has them");
  command.group("Speed")
      .option("--disk", options->disk, "GB/S", "of the drive (default: measured)")
      .option("--memory", options->memory, "GB/S", "of memory (default: measured)");
  command.group("Output").flag("--json", options->json, "print JSON");
  add_general_options(command, options->general);
  command.example("plan /data/qwen --ram 16G")
      .example("plan Qwen/Qwen3.6-35B-A3B")
      .example("plan --like qwen3.6-35b-a3b --ram 8G")
      .example("plan --json /data/qwen | jq .floor_bytes")
      .example("plan /data/qwen --ram 96G --disk 7 --memory 80");
  command.note("No weight is loaded. With --disk and --memory the plan is for another machine.")
      .note(
          "Of ORG/NAME that is not on this machine, config and headers are fetched from the hub, "
          "and")
      .note("the drive is measured with a file of 256 MiB where the model would be put.");
  command.run(options, run);
}

}  // namespace moeflux::cli
