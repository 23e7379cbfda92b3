// moeflux doctor: looks at this machine, measures it, and says what could be better.
#include <memory>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "cli/reports/doctor_report.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"

namespace moeflux::cli {
namespace {

struct DoctorArguments {
  GeneralOptions general;
  std::optional<std::string> record;
  bool json = false;
  bool quick = false;
};

int run(const DoctorArguments& options, const std::vector<std::string>& arguments) {
  DoctorOptions doctor;
  if (!arguments.empty()) doctor.path = arguments[0];
  doctor.quick = options.quick;
  if (options.record) {
    const std::uint64_t bytes = parse_size(*options.record, "--record");
    if (bytes > std::uint64_t{1} << 30) throw UsageError("--record: at most 1G");
    doctor.record_bytes = bytes;
  }
  DoctorReport report;
  {
    const InterruptGuard guard;
    ProgressBar bar("measuring", options.general.show_progress());
    doctor.progress = [&](int step, int n_steps, const std::string& what) {
      throw_if_interrupted();
      bar.update(static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(n_steps), what);
    };
    report = examine(doctor);
  }
  write_stdout(options.json ? dump_json(to_json(report), 2) + "\n"
                            : to_text(report, options.general.color_on_stdout()));
  for (const Finding& finding : report.findings) {
    if (finding.severity == Severity::Error) return kFailure;
  }
  return kSuccess;
}

}  // namespace

void add_doctor_command(CommandLine& line) {
  const auto options = std::make_shared<DoctorArguments>();
  Command& command =
      line.add("doctor", "Examine and measure this machine, and say what could be better.");
  command.arguments("[MODEL|DIRECTORY]", 1);
  command.group("Options")
      .flag("--quick", options->quick, "measure for two seconds instead of twelve")
      .option("--record", options->record, "SIZE",
              "size of a read when no model is given (default: 2M)");
  command.group("Output").flag("--json", options->json, "print JSON");
  add_general_options(command, options->general);
  command.example("doctor")
      .example("doctor /data/qwen")
      .example("doctor --json --quick /data | jq .findings");
  command.note(
      "With a model its own files are read; else a test file of at most 1 GiB is written in");
  command.note(
      "DIRECTORY (default: the current one) and removed. The report names no host, user or");
  command.note(
      "path, so that it can be pasted into a bug report. The exit code is 1 when something");
  command.note("does not work at all.");
  command.run(
      [options](const std::vector<std::string>& arguments) { return run(*options, arguments); });
}

}  // namespace moeflux::cli
