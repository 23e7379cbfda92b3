// The program: builds the command line, runs one command, and turns what went wrong into a message
// and an exit code.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include "base/error.h"
#include "cli/build_info.h"
#include "cli/command_line.h"
#include "cli/commands/commands.h"
#include "cli/options/environment.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

// An answer takes 48 KiB; templates, schemas and JSON that are nested as deeply as their limits
// allow take the rest.
constexpr std::size_t kNeeded = std::size_t{1} << 20;
constexpr std::size_t kUsual = std::size_t{8} << 20;

// New threads get what the limit was when the program started.
bool ensure_stack_of_threads() {
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) != 0) return false;
  std::size_t bytes = 0;
  bool enough = ::pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes >= kNeeded;
  if (!enough) {
    enough = ::pthread_attr_setstacksize(&attributes, kUsual) == 0 &&
             ::pthread_setattr_default_np(&attributes) == 0;
  }
  ::pthread_attr_destroy(&attributes);
  return enough;
}

// Sees to it that this thread, and those it will start, have stack enough. To be called first: with
// a tiny limit (ulimit -s) the program would end at some deep call without a word. Returns what is
// wrong, or "".
std::string ensure_stack() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0) return "";
  if (limit.rlim_cur < kNeeded) {
    // The stack of this thread grows up to the limit as it is at that time.
    limit.rlim_cur = std::min<rlim_t>(kUsual, limit.rlim_max);
    if (limit.rlim_cur < kNeeded || ::setrlimit(RLIMIT_STACK, &limit) != 0)
      return "the stack is limited to less than 1 MiB; allow more: ulimit -s 8192";
  }
  return ensure_stack_of_threads() ? "" : "threads cannot have a stack of 8 MiB";
}

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
  line.version_text(version_text());
  for (const auto add :
       {add_run_command,     add_chat_command,     add_serve_command,    add_ps_command,
        add_info_command,    add_pull_command,     add_ls_command,       add_show_command,
        add_rm_command,      add_tokenize_command, add_template_command, add_verify_command,
        add_eval_command,    add_bench_command,    add_convert_command,  add_check_command,
        add_synth_command,   add_doctor_command,   add_plan_command,     add_trace_command,
        add_store_command,   add_version_command,  add_config_command,   add_completion_command,
        add_man_page_command})
    add(line);
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
