// The program: builds the command line, runs one command, and turns what went wrong into a message
// and an exit code.
#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/build_info.h"
#include "cli/command_line.h"
#include "cli/commands/commands.h"
#include "cli/options/environment.h"
#include "cli/terminal/stack_limit.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

void report(const std::string& message, const std::string& hint = "") {
  const bool color = use_color(ColorMode::Auto, stderr_is_terminal());
  write_stderr(fmt::format("moeflux: {} {}\n", styled("error:", Style::Red, color), message));
  if (!hint.empty()) write_stderr(fmt::format("moeflux: {}\n", hint));
}

std::string usage_hint(const std::string& command) {
  return command.empty() ? "see moeflux --help" : fmt::format("see moeflux {} --help", command);
}

int run(const std::vector<std::string>& arguments) {
  CommandLine line("moeflux runs mixture-of-experts language models that are larger than memory.",
                   version_line());
  add_run_command(line);
  add_chat_command(line);
  add_serve_command(line);
  add_ps_command(line);
  add_info_command(line);
  add_ls_command(line);
  add_show_command(line);
  add_rm_command(line);
  add_tokenize_command(line);
  add_template_command(line);
  add_verify_command(line);
  add_eval_command(line);
  add_bench_command(line);
  add_convert_command(line);
  add_check_command(line);
  add_synth_command(line);
  add_doctor_command(line);
  add_plan_command(line);
  add_trace_command(line);
  add_store_command(line);
  add_version_command(line);
  add_config_command(line);
  add_completion_command(line);
  add_man_page_command(line);
  line.example("run \"What is 12 + 30?\"");
  line.example("info models/demo");
  line.example("run --help");
  for (const EnvironmentVariable& variable : environment_variables()) {
    line.environment({variable.name, variable.meaning});
  }
  for (const NamedText& file : config_file_names()) line.file(file);
  line.use_config(config_places);
  return line.run(arguments);
}

}  // namespace
}  // namespace moeflux::cli

int main(int argc, char** argv) {
  using namespace moeflux;
  if (const std::string problem = cli::ensure_stack(); !problem.empty()) {
    cli::report(problem);
    return cli::kFailure;
  }
  // A reader that goes away ends the program quietly, also where the parent process has SIGPIPE
  // ignored.
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow further is an error of its write
  try {
    return cli::run({argv + std::min(argc, 1), argv + argc});
  } catch (const cli::UsageError& error) {
    cli::report(error.what(), cli::usage_hint(error.command()));
    return cli::kUsage;
  } catch (const Error& error) {
    if (error.code() == Errc::Cancelled) return cli::kInterrupted;
    cli::report(error.what());
  } catch (const std::bad_alloc&) {
    cli::report("out of memory", "a smaller --ram or -c needs less");
  } catch (const std::exception& error) {
    cli::report(error.what());
  }
  return cli::kFailure;
}
