// moeflux ls: the models of a directory.
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>

#include <fmt/ranges.h>

#include "base/json.h"
#include "base/memory_budget.h"
#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/options/hub_options.h"
#include "cli/options/model_options.h"
#include "engine/model_catalog.h"

namespace moeflux::cli {
namespace {

struct LsArguments {
  ModelOptions model;
  GeneralOptions general;
  bool json = false;
};

std::string time_text(std::int64_t seconds, const char* format) {
  const std::time_t time = seconds;
  std::tm parts{};
  if (::gmtime_r(&time, &parts) == nullptr) return "-";
  char text[40];
  return {text, std::strftime(text, sizeof text, format, &parts)};
}

Json to_json(const std::vector<CatalogEntry>& models) {
  Json list = Json::array();
  for (const CatalogEntry& model : models) {
    const auto or_null = [](const auto& value, bool known) { return known ? Json(value) : Json(); };
    list.push_back({{"name", model.name},
                    {"path", model.path},
                    {"bytes", model.bytes},
                    {"modified", time_text(model.modified, "%Y-%m-%dT%H:%M:%SZ")},
                    {"format", or_null(model.format, !model.format.empty())},
                    {"family", or_null(model.family, !model.family.empty())},
                    {"parameters", or_null(model.n_parameters, model.n_parameters > 0)},
                    {"expert_bits", or_null(model.expert_bits, model.expert_bits > 0)},
                    {"problem", or_null(model.problem, !model.problem.empty())}});
  }
  return list;
}

std::string to_text(const std::vector<CatalogEntry>& models) {
  std::size_t width = 4, family = 6;
  for (const CatalogEntry& model : models) {
    width = std::max(width, model.name.size());
    family = std::max(family, model.family.size());
  }
  const auto row = [&](const auto& name, const auto& size, const auto& format, const auto& kind,
                       const auto& bits, const auto& modified) {
    return fmt::format("{:<{}}  {:>10}  {:<11}  {:<{}}  {:>4}  {}\n", name, width, size, format,
                       kind, family, bits, modified);
  };
  std::string text = row("NAME", "SIZE", "FORMAT", "FAMILY", "BITS", "MODIFIED");
  for (const CatalogEntry& model : models) {
    const auto or_dash = [](const std::string& word) { return word.empty() ? "-" : word; };
    text += row(model.name, format_bytes(model.bytes), or_dash(model.format), or_dash(model.family),
                model.expert_bits > 0 ? fmt::format("{:.1f}", model.expert_bits) : "-",
                time_text(model.modified, "%Y-%m-%d %H:%M"));
    if (!model.problem.empty()) text += fmt::format("  cannot be used: {}\n", model.problem);
  }
  return text;
}

bool is_same(const std::string& directory, const std::optional<std::string>& other) {
  std::error_code error;
  return other && std::filesystem::equivalent(directory, *other, error);
}

int run(const LsArguments& options, const std::vector<std::string>& arguments) {
  std::vector<std::string> directories = arguments;
  if (arguments.empty()) {
    const std::string cache = hub_cache_if_there();
    if (options.model.models || cache.empty())
      directories.push_back(models_directory(options.model));
    if (!cache.empty() && !is_same(cache, options.model.models)) directories.push_back(cache);
  }
  std::vector<CatalogEntry> models;
  for (const std::string& directory : directories) {
    for (CatalogEntry& each : list_models(directory)) models.push_back(std::move(each));
  }
  if (options.json) {
    write_stdout(dump_json(to_json(models), 2) + "\n");
  } else if (models.empty()) {
    options.general.note(fmt::format("there are no models in {}; moeflux pull ORG/NAME fetches one",
                                     fmt::join(directories, " and in ")));
  } else {
    write_stdout(to_text(models));
  }
  return kSuccess;
}

}  // namespace

void add_ls_command(CommandLine& line) {
  const auto options = std::make_shared<LsArguments>();
  Command& command = line.add("ls", "List the models of a directory and those of the hub's cache.");
  command.arguments("[DIR]", 1);
  command.flag("--json", options->json, "print the list as JSON");
  add_models_option(command, options->model);
  add_general_options(command, options->general);
  command.example("ls").example("ls /data/models").example("ls --json | jq '.[].name'");
  command.note("Without DIR: those of --models, and those that pull has fetched, as ORG/NAME.");
  command.note("BITS are those stored per weight of an expert, scales included. Times are UTC.")
      .note("Wherever a command takes a model, a name of this list will do.");
  command.run(options, run);
}

}  // namespace moeflux::cli
