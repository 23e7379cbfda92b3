// Options every command has, and what they say to the user beside its results.
#pragma once

#include <string>
#include <string_view>

#include "cli/command_line.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {

struct GeneralOptions {
  bool quiet = false;
  bool verbose = false;
  std::string color = "auto";

  bool color_on_stdout() const { return use_color(parse_color(color), stdout_is_terminal()); }
  bool color_on_stderr() const { return use_color(parse_color(color), stderr_is_terminal()); }
  bool show_progress() const { return !quiet && stderr_is_terminal(); }

  void note(std::string_view line) const;    // to stderr, unless quiet
  void detail(std::string_view line) const;  // to stderr, only when verbose
};

void add_general_options(Command& command, GeneralOptions& options);

}  // namespace moeflux::cli
