// moeflux rm: removes a model from the directory of models.
#include <iostream>
#include <memory>

#include "base/json.h"
#include "base/memory_budget.h"
#include "cli/commands/commands.h"
#include "cli/commands/model_removal.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"

namespace moeflux::cli {
namespace {

struct RmArguments {
  ModelOptions model;
  GeneralOptions general;
  bool yes = false, json = false;
};

std::string describe(const RemovalPlan& plan) {
  if (plan.is_link) return fmt::format("the link {}, not what it leads to", plan.path);
  return fmt::format("{}, {}{}", plan.path, format_bytes(plan.bytes),
                     plan.stripes.empty() ? ""
                                          : fmt::format(", with {} files elsewhere such as {}",
                                                        plan.stripes.size(), plan.stripes[0]));
}

bool agreed(const RemovalPlan& plan) {
  if (!stdin_is_terminal())
    throw UsageError("nobody can be asked here; give --yes to remove without asking", "rm");
  write_stderr(fmt::format("remove {}? [y/N] ", describe(plan)));
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

int run(const RmArguments& options, const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw UsageError("which model? moeflux ls lists them", "rm");
  const std::string directory = models_directory(options.model);
  const std::vector<CatalogEntry> models = list_models(directory);
  const RemovalPlan plan = plan_removal(directory, find_model(models, arguments[0]));
  if (!options.yes && !agreed(plan)) {
    options.general.note("nothing was removed");
    return kFailure;
  }
  remove_model(plan);
  for (const std::string& kept : plan.kept) options.general.note("left: " + kept);
  write_stdout(options.json
                   ? dump_json({{"name", plan.name},
                                {"path", plan.path},
                                {"link", plan.is_link},
                                {"bytes_freed", plan.bytes},
                                {"kept", plan.kept}}) +
                         "\n"
                   : fmt::format("{}: removed, {} freed\n", plan.name, format_bytes(plan.bytes)));
  return kSuccess;
}

}  // namespace

void add_rm_command(CommandLine& line) {
  const auto options = std::make_shared<RmArguments>();
  Command& command = line.add("rm", "Remove a model from the directory of models.");
  command.arguments("NAME", 1);
  command.flag("-y,--yes", options->yes, "do not ask").command_line_only();
  command.flag("--json", options->json, "print the result as JSON");
  add_models_option(command, options->model);
  add_general_options(command, options->general);
  command.example("rm qwen3.6").example("rm --yes --models /data/models qwen/qwen3.6");
  command.note("A model that is a link loses the link only. Stripes of a container go with it.");
  command.run(
      [options](const std::vector<std::string>& arguments) { return run(*options, arguments); });
}

}  // namespace moeflux::cli
