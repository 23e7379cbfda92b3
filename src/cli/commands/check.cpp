// moeflux check: reads a whole model from the drive and compares its checksums.
#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/memory_budget.h"
#include "base/stopwatch.h"
#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"
#include "convert/scrub.h"
#include "families/family.h"

namespace moeflux::cli {
namespace {

struct CheckArguments {
  ModelOptions model;
  GeneralOptions general;
  bool json = false;
};

Json report_json(const ScrubReport& report, const std::string& model, double seconds) {
  Json damage = Json::array();
  for (const Damage& d : report.damage) {
    damage.push_back({{"name", d.name}, {"file", d.path}, {"what", d.what}});
  }
  return {{"model", model},
          {"bytes", report.bytes},
          {"checksums", report.n_checksums},
          {"seconds", seconds},
          {"damage", std::move(damage)}};
}

std::string report_text(const ScrubReport& report, double seconds, bool color) {
  std::string text;
  for (const Damage& d : report.damage) {
    text += fmt::format("{} {}\n  in {}: {}\n", styled("damaged", Style::Red, color), d.name,
                        d.path, d.what);
  }
  const std::string speed =
      fmt::format("{}/s", format_bytes(static_cast<std::uint64_t>(
                              static_cast<double>(report.bytes) / std::max(seconds, 1e-3))));
  if (!report.damage.empty()) {
    return text + fmt::format("{} of {} parts are damaged; convert or fetch the model again\n",
                              report.damage.size(), report.n_checksums);
  }
  if (report.n_checksums > 0) {
    return fmt::format("{} {} checksums over {}, read with {}\n", styled("ok", Style::Green, color),
                       report.n_checksums, format_bytes(report.bytes), speed);
  }
  return fmt::format(
      "{} all {} can be read, with {}; this layout has no checksums to compare (moeflux convert "
      "makes one that has)\n",
      styled("ok", Style::Green, color), format_bytes(report.bytes), speed);
}

int run(const CheckArguments& options, const std::vector<std::string>& arguments) {
  const std::string model = only_model(options.model, arguments);
  const InterruptGuard guard;
  const auto source = open_source(model);
  static_cast<void>(describe_model(*source));  // the config and the index must make sense, too
  const auto start = std::chrono::steady_clock::now();
  ScrubReport report;
  {
    TransferProgress progress("checking", options.general);
    ScrubOptions scrub_options;
    scrub_options.progress = [&](std::uint64_t done, std::uint64_t total) {
      throw_if_interrupted();
      progress.update(done, total);
    };
    report = scrub(*source, scrub_options);
  }
  const double seconds = seconds_since(start);
  write_stdout(options.json ? dump_json(report_json(report, model, seconds), 2) + "\n"
                            : report_text(report, seconds, options.general.color_on_stdout()));
  return report.damage.empty() ? kSuccess : kFailure;
}

}  // namespace

void add_check_command(CommandLine& line) {
  const auto options = std::make_shared<CheckArguments>();
  Command& command =
      line.add("check", "Read all of a model from the drive and compare its checksums.");
  command.arguments("[MODEL]", 1);
  command.group("Output").flag("--json", options->json, "print JSON");
  add_model_option(command, options->model);
  add_general_options(command, options->general);
  command.example("check /data/qwen").example("check --json /data/qwen | jq .damage");
  command.note("The exit code is 1 when something is damaged. Only containers have checksums.");
  command.run(options, run);
}

}  // namespace moeflux::cli
