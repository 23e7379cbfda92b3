// moeflux version: one line.
#include "cli/build_info.h"
#include "cli/commands/commands.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {

void add_version_command(CommandLine& line) {
  Command& command = line.add("version", "Show the version.");
  command.without_config().example("version").example("info");
  command.run([](const std::vector<std::string>&) {
    write_stdout(version_line() + "\n");
    return kSuccess;
  });
}

}  // namespace moeflux::cli
