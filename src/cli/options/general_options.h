// Options every command has, and what they say to the user beside its results.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cli/command_line.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {

struct GeneralOptions {
  bool quiet = false;
  bool verbose = false;
  std::string color = "auto";
  std::function<void(std::string_view)> say = {};  // takes remarks instead of standard error

  bool color_on_stdout() const { return use_color(parse_color(color), stdout_is_terminal()); }
  bool color_on_stderr() const { return use_color(parse_color(color), stderr_is_terminal()); }
  bool show_progress() const { return !quiet && !say && stderr_is_terminal(); }

  void note(std::string_view line) const {  // to stderr, unless quiet
    if (quiet) return;
    say ? say(line) : write_stderr(fmt::format("moeflux: {}\n", line));
  }
  void detail(std::string_view line) const {  // to stderr, only when verbose
    if (verbose) note(line);
  }
};

inline void add_general_options(Command& command, GeneralOptions& options) {
  command.group("General")
      .flag("-q,--quiet", options.quiet, "no progress and no remarks, only results and errors")
      .flag("-v,--verbose", options.verbose, "say more on standard error")
      .option("--color", options.color, "WHEN", "auto, on or off (default: auto)")
      .choices({"auto", "on", "off"})
      .env("NO_COLOR", "off");
}

}  // namespace moeflux::cli
