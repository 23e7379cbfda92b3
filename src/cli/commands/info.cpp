// moeflux info: the program and the machine, or a model.
#include <memory>

#include <fmt/ranges.h>

#include "base/memory_budget.h"
#include "base/memory_limits.h"
#include "cli/build_info.h"
#include "cli/commands/commands.h"
#include "cli/options/environment.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "cli/reports/model_summary.h"

namespace moeflux::cli {
namespace {

struct InfoArguments {
  ModelOptions model;
  GeneralOptions general;
  bool json = false;
};

Json program_json() {
  const CpuInfo cpu = cpu_info();
  Json environment = Json::object();
  for (const EnvironmentVariable& variable : environment_variables()) {
    environment[variable.name] = variable.value ? Json(*variable.value) : Json();
  }
  Json families_json = Json::array();
  for (const Family* family : families()) families_json.push_back(family->name);
  return {{"version", program_version()},
          {"commit", program_commit().empty() ? Json() : Json(program_commit())},
          {"build_type", build_type()},
          {"compiler", compiler()},
          {"cpu", {{"name", cpu.name}, {"cores", cpu.n_cores}, {"features", cpu.features}}},
          {"memory_available", usable_memory(read_memory_limits())},
          {"backends", backend_names()},
          {"families", std::move(families_json)},
          {"environment", std::move(environment)}};
}

std::string program_text() {
  const CpuInfo cpu = cpu_info();
  std::string text;
  const auto line = [&](const char* what, const std::string& value) {
    text += fmt::format("{:<14}{}\n", what, value);
  };
  line("version", version_line());
  line("cpu", fmt::format("{}, {} cores", cpu.name, cpu.n_cores));
  line("features", fmt::format("{}", fmt::join(cpu.features, " ")));
  line("memory", format_bytes(usable_memory(read_memory_limits())) + " available");
  line("backends", fmt::format("{}", fmt::join(backend_names(), ", ")));
  std::vector<std::string_view> names;
  for (const Family* family : families()) names.push_back(family->name);
  line("families", fmt::format("{}", fmt::join(names, ", ")));
  text += "environment\n";
  for (const EnvironmentVariable& variable : environment_variables()) {
    text += fmt::format("  {:<18}{} ({})\n", variable.name, variable.value.value_or("not set"),
                        variable.meaning);
  }
  return text;
}

int run(const InfoArguments& options, const std::vector<std::string>& arguments) {
  const bool about_program = arguments.empty() && !options.model.model;
  if (about_program) {
    write_stdout(options.json ? dump_json(program_json(), 2) + "\n" : program_text());
  } else {
    const ModelSummary summary = summarize(only_model(options.model, arguments));
    write_stdout(options.json ? dump_json(to_json(summary), 2) + "\n" : to_text(summary));
  }
  return kSuccess;
}

}  // namespace

void add_info_command(CommandLine& line) {
  const auto options = std::make_shared<InfoArguments>();
  Command& command = line.add("info", "Describe the program and this machine, or a model.");
  command.arguments("[MODEL]", 1);
  command.group("Output").flag("--json", options->json, "print JSON");
  command.group("Model")
      .option("-m,--model", options->model.model, "PATH", "the checkpoint to describe")
      .command_line_only();  // without one, the program is described
  add_models_option(command, options->model);
  add_general_options(command, options->general);
  command.example("info")
      .example("info models/demo")
      .example("info --json models/demo | jq .memory_floor");
  command.note("A model is described from its files alone; no weight is loaded.");
  command.run(options, run);
}

void add_version_command(CommandLine& line) {
  const auto json = std::make_shared<bool>(false);
  Command& command = line.add("version", "Show the version, and what it was built with.");
  command.without_config().example("version").example("version --json");
  command.flag("--json", *json, "one JSON object");
  command.run([json](const std::vector<std::string>&) {
    write_stdout(*json ? dump_json(build_json()) + "\n" : version_text());
    return kSuccess;
  });
}

}  // namespace moeflux::cli
