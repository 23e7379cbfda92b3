// moeflux verify: the engine against golden values of a reference implementation.
#include "engine/verify/verify.h"

#include <memory>

#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "cli/terminal/interrupt.h"

namespace moeflux::cli {
namespace {

struct VerifyArguments {
  ModelOptions model;
  GeneralOptions general;
  std::optional<std::string> golden;
  double tolerance = VerifyOptions{}.tolerance;
  std::int64_t chunk = 0;
  bool json = false;
};

Json check_json(const VerifyCheck& check) {
  Json json;
  if (!check.prompt.empty()) json["prompt"] = check.prompt;
  json["name"] = check.name;
  json["relative"] = check.difference.relative;
  json["row"] = check.difference.row;
  json["value"] = check.difference.value;
  json["cosine"] = check.difference.cosine;
  json["max_abs"] = check.difference.max_abs;
  if (!check.note.empty()) json["note"] = check.note;
  json["passed"] = check.passed;
  return json;
}

std::string check_line(const VerifyCheck& check, bool color) {
  const std::string name = check.prompt.empty() ? check.name : check.prompt + " " + check.name;
  const RowDifference& d = check.difference;
  const std::string verdict = check.passed
                                  ? styled("ok", Style::Green, color)
                                  : styled(fmt::format("FAIL at row {}", d.row), Style::Red, color);
  return fmt::format("{:<18} {:>9.2e}  {:>9.2e}  {:.9f}  {:>9.2e}  {:<14} {}\n", name, d.relative,
                     d.value, d.cosine, d.max_abs, check.note, verdict);
}

int run(const VerifyArguments& options, const std::vector<std::string>& arguments) {
  if (!options.golden) throw UsageError("--golden FILE is missing");
  if (!(options.tolerance >= 0)) throw UsageError("--tol must be 0 or more");
  if (options.chunk < 0) throw UsageError("--chunk must be 0 (as many as fit) or more");
  const bool color = options.general.color_on_stdout();
  const std::string model = only_model(options.model, arguments);
  const InterruptGuard guard;
  const auto engine = open_engine(model, options.model, options.general);
  options.general.detail(
      fmt::format("{}: {} on {}", model, engine->config().family, engine->backend().name()));

  Json checks = Json::array();
  int n_failed = 0, n_checks = 0;
  const auto on_check = [&](const VerifyCheck& check) {
    throw_if_interrupted();
    if (n_checks++ == 0 && !options.json) {
      write_stdout(fmt::format("{:<18} {:>9}  {:>9}  {:>11}  {:>9}\n", "check", "worst row",
                               "value", "cosine", "max abs"));
    }
    n_failed += check.passed ? 0 : 1;
    if (options.json) {
      checks.push_back(check_json(check));
    } else if (!options.general.quiet || !check.passed) {
      write_stdout(check_line(check, color));
    }
  };
  const VerifyOptions how{
      .tolerance = options.tolerance, .chunk = options.chunk, .on_layer = throw_if_interrupted};
  const bool passed = verify_model(*engine, *options.golden, how, on_check);
  if (options.json) {
    const Json result = {{"model", model},
                         {"golden", *options.golden},
                         {"tolerance", options.tolerance},
                         {"passed", passed},
                         {"checks", std::move(checks)}};
    write_stdout(dump_json(result, 2) + "\n");
  } else {
    write_stdout(passed
                     ? fmt::format("all {} checks are within {:g}\n", n_checks, options.tolerance)
                     : fmt::format("{} of {} checks FAILED (tolerance {:g})\n", n_failed, n_checks,
                                   options.tolerance));
  }
  return passed ? kSuccess : kFailure;
}

}  // namespace

void add_verify_command(CommandLine& line) {
  const auto options = std::make_shared<VerifyArguments>();
  Command& command =
      line.add("verify", "Compare a model, layer by layer, with golden values of a reference.");
  command.arguments("[MODEL] --golden FILE", 1);
  command.group("Verification")
      .option("--golden", options->golden, "FILE",
              "safetensors file: ids, hidden, logits, routes, greedy, ...")
      .option("--tol", options->tolerance, "X",
              "largest relative difference of a row that passes (default: 5e-5)")
      .option("--chunk", options->chunk, "N",
              "tokens per pass over the prompt (default: 0, as many as fit)")
      .flag("--json", options->json, "print the checks as JSON");
  add_model_option(command, options->model);
  options->model.precision = "exact";
  add_machine_options(command, options->model);
  add_general_options(command, options->general);
  command
      .example("verify tests/fixtures/qwen-fp8 --golden tests/fixtures/qwen-fp8/golden.safetensors")
      .example("verify models/demo --golden golden.safetensors --tol 1e-5 --chunk 7 --json");
  command.note("Every position is judged alone, by its relative difference and by its worst value.")
      .note("Exit code 1 when a check is beyond the tolerance.");
  command.run(options, run);
}

}  // namespace moeflux::cli
