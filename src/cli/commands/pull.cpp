// moeflux pull: fetches a model from the hub into its cache, or a GGUF file from an address.
#include "hub/pull.h"

#include <chrono>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory_budget.h"
#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/options/hub_options.h"
#include "cli/options/model_options.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "source/gguf.h"

namespace moeflux::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct PullArguments {
  ModelOptions model;
  GeneralOptions general;
  std::vector<std::string> include, exclude;
  std::optional<std::string> cache, to, sha256;
  std::int64_t connections = 8;
  bool dry_run = false, json = false;
};

std::string short_commit(const std::string& commit) {
  return commit.substr(0, 8);
}

Json files_json(const std::vector<HubFile>& files) {
  Json list = Json::array();
  for (const HubFile& file : files) list.push_back({{"path", file.path}, {"bytes", file.size}});
  return list;
}

Json to_json(const PullReport& report, double seconds) {
  const PullPlan& plan = report.plan;
  return {{"name", plan.name},
          {"revision", plan.revision},
          {"commit", plan.commit},
          {"path", report.path.empty() ? Json() : Json(report.path)},
          {"bytes", plan.total_bytes},
          {"bytes_present", plan.present_bytes},
          {"bytes_fetched", report.fetched_bytes},
          {"seconds", seconds},
          {"files", files_json(plan.files)}};
}

std::string of_revision(const PullPlan& plan) {
  return plan.commit.empty() ? ""
                             : fmt::format(" ({}, {})", plan.revision, short_commit(plan.commit));
}

std::string plan_text(const PullPlan& plan) {
  std::string text = fmt::format("model     {}{}\n", safe_line(plan.name), of_revision(plan));
  for (const HubFile& file : plan.files)
    text += fmt::format("{:>12}  {}\n", format_bytes(file.size), safe_line(file.path));
  text += fmt::format("{:>12}  in all, of which {} are there\n", format_bytes(plan.total_bytes),
                      format_bytes(plan.present_bytes));
  return text;
}

// How other commands call what was fetched.
std::string call_name(const PullReport& report, const HubReference& reference) {
  const PullPlan& plan = report.plan;
  if (plan.commit.empty()) return report.path;
  std::string name = plan.name;
  if (!reference.tag.empty()) return name + ":" + reference.tag;
  if (plan.revision != "main") return name + "@" + plan.revision;
  return name;
}

std::string report_text(const PullReport& report, const HubReference& reference, double seconds) {
  const PullPlan& plan = report.plan;
  std::string text = fmt::format("model     {}{}\n", safe_line(plan.name), of_revision(plan));
  text += fmt::format("path      {}\n", report.path);
  if (report.fetched_bytes == 0 && plan.present_bytes >= plan.total_bytes) {
    text += fmt::format("fetched   nothing: all {} were there\n", format_bytes(plan.total_bytes));
  } else {
    const auto rate = static_cast<double>(report.fetched_bytes) / std::max(seconds, 0.001);
    text += fmt::format("fetched   {} of {} in {}, {}/s\n", format_bytes(report.fetched_bytes),
                        format_bytes(plan.total_bytes), format_duration(seconds),
                        format_bytes(static_cast<std::uint64_t>(rate)));
  }
  return text + fmt::format("next      moeflux run {} \"...\"\n", call_name(report, reference));
}

// Files of the model have several colours of state; one bar tells them all.
class PullProgress {
 public:
  PullProgress(std::string name, const GeneralOptions& general)
      : name_(std::move(name)), general_(general) {}

  void update(const TransferState& state) {
    throw_if_interrupted();
    if (!state.waiting.empty() && state.waiting != waiting_)
      general_.note(
          fmt::format("another process fetches {}; waiting for it", safe_line(state.waiting)));
    waiting_ = state.waiting;
    if (state.done < state.total || bar_) {
      if (!bar_) bar_.emplace("fetching " + name_, general_);
      bar_->update(state.done, state.total);
    }
  }
  void end() { bar_.reset(); }

 private:
  const std::string name_;
  const GeneralOptions& general_;
  std::optional<TransferProgress> bar_;
  std::string waiting_;
};

PullOptions pull_options(const PullArguments& arguments, PullProgress& progress) {
  if (arguments.connections < 1 || arguments.connections > 64)
    throw UsageError("--connections must be from 1 to 64");
  PullOptions options;
  options.client.settings = hub_settings();
  if (arguments.cache) options.client.settings.cache = *arguments.cache;
  options.client.cancelled = [] { return interrupted(); };
  options.client.note = [&](const std::string& text) { arguments.general.note(safe_line(text)); };
  options.transfer.n_connections = static_cast<int>(arguments.connections);
  options.planned = [&](const PullPlan& plan) {
    arguments.general.detail(fmt::format("{} files, {}, of which {} are there", plan.files.size(),
                                         format_bytes(plan.total_bytes),
                                         format_bytes(plan.present_bytes)));
  };
  options.progress = [&](const TransferState& state) { progress.update(state); };
  return options;
}

std::string directory_for_file(const PullArguments& arguments) {
  std::string directory = arguments.to ? *arguments.to : arguments.model.models.value_or(".");
  if (!directory_exists(directory))
    fail(Errc::NotFound, "{}: no such directory to put the file into", directory);
  return directory;
}

void check_arguments(const PullArguments& options, bool is_address) {
  const auto only = [&](bool given, const char* option, const char* where) {
    if (given) throw UsageError(fmt::format("{} is for {}", option, where));
  };
  if (is_address) {
    only(!options.include.empty(), "--include", "models of the hub");
    only(!options.exclude.empty(), "--exclude", "models of the hub");
    only(options.cache.has_value(), "--cache",
         "models of the hub; --to DIR says where a file goes");
    only(options.dry_run, "--dry-run", "models of the hub");
  } else {
    only(options.to.has_value(), "--to", "the address of a file; models go to --cache DIR");
    only(options.sha256.has_value(), "--sha256", "the address of a file; the hub knows its own");
  }
  if (options.sha256 &&
      (options.sha256->size() != 64 ||
       in_lower_case(*options.sha256).find_first_not_of("0123456789abcdef") != std::string::npos))
    throw UsageError("--sha256: 64 digits of hexadecimal");
}

int run(const PullArguments& options, const std::vector<std::string>& arguments) {
  if (arguments.empty())
    throw UsageError("which model? such as ORG/NAME, or the address of a .gguf file");
  const std::string& what = arguments[0];
  PullProgress progress(safe_line(what), options.general);
  const PullOptions with = pull_options(options, progress);
  const bool is_address = is_foreign_address(what, with.client.settings);
  check_arguments(options, is_address);
  const InterruptGuard guard;
  const Clock::time_point start = Clock::now();
  PullReport report;
  HubReference reference;
  try {
    if (is_address) {
      report = pull_address(parse_url(what), directory_for_file(options),
                            in_lower_case(options.sha256.value_or("")), with);
    } else {
      reference = parse_hub_reference(what, with.client.settings);
      const FileChoice choice{
          .include = options.include, .exclude = options.exclude, .tag = {}, .file = {}};
      if (options.dry_run)
        report.plan = plan_pull(reference, choice, with);
      else
        report = pull_model(reference, choice, with);
    }
  } catch (const Error& error) {
    progress.end();
    if (error.code() == Errc::Cancelled)
      options.general.note("interrupted; the same command goes on where it was");
    throw;
  }
  progress.end();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (options.json)
    write_stdout(dump_json(to_json(report, seconds), 2) + "\n");
  else
    write_stdout(options.dry_run ? plan_text(report.plan)
                                 : report_text(report, reference, seconds));
  return kSuccess;
}

}  // namespace

void add_pull_command(CommandLine& line) {
  const auto options = std::make_shared<PullArguments>();
  Command& command = line.add("pull", "Fetch a model from the Hugging Face hub, or a GGUF file.");
  command.arguments("MODEL", 1);
  command.group("Model")
      .option("--include", options->include, "PATTERN",
              "fetch the files that match, such as '*Q4_K_M*'; repeatable (default: the model)")
      .option("--exclude", options->exclude, "PATTERN", "leave these out; repeatable")
      .option("--sha256", options->sha256, "HASH", "that the file of an address must have");
  command.group("Where")
      .option("--cache", options->cache, "DIR",
              "the cache to keep it in (default: HF_HUB_CACHE, or ~/.cache/huggingface/hub)")
      .option("--to", options->to, "DIR", "for a file of an address (default: --models, or here)");
  add_models_option(command, options->model);
  command.group("Transfer")
      .option("--connections", options->connections, "N",
              "ranges that are fetched at once (default: 8)")
      .flag("--dry-run", options->dry_run, "say which files there are, fetch none");
  command.group("Output").flag("--json", options->json, "print the result as JSON");
  add_general_options(command, options->general);
  command.example("pull Qwen/Qwen3.6-35B-A3B")
      .example("pull ORG/NAME-GGUF:Q4_K_M")
      .example("pull ORG/NAME@v1.0 --include '*.safetensors' --include '*.json'")
      .example("pull https://example.org/models/some-Q4_K_M.gguf --to /data/models");
  command
      .note(
          "MODEL is ORG/NAME, with @REVISION (a branch, tag or commit) or :QUANTIZATION of GGUF, "
          "or an")
      .note(
          "address. Afterwards every command takes it by that name. The same command goes on after "
          "a")
      .note(
          "kill, a lost line or Ctrl-C, and fetches nothing twice. Every file is checked against "
          "its hash.")
      .note(
          "The cache is the one that huggingface_hub uses: what either has fetched the other "
          "finds.")
      .note(
          "HF_TOKEN, HF_TOKEN_PATH, HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, https_proxy and no_proxy "
          "count.");
  command.run(options, run);
}

}  // namespace moeflux::cli
