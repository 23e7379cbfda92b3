#include "cli/options/general_options.h"

#include <fmt/format.h>

namespace moeflux::cli {

void GeneralOptions::note(std::string_view line) const {
  if (!quiet) write_stderr(fmt::format("moeflux: {}\n", line));
}

void GeneralOptions::detail(std::string_view line) const {
  if (verbose) note(line);
}

void add_general_options(Command& command, GeneralOptions& options) {
  command.group("General")
      .flag("-q,--quiet", options.quiet, "no progress and no remarks, only results and errors")
      .flag("-v,--verbose", options.verbose, "say more on standard error")
      .option("--color", options.color, "WHEN", "auto, on or off (default: auto)")
      .choices({"auto", "on", "off"})
      .env("NO_COLOR", "off");
}

}  // namespace moeflux::cli
