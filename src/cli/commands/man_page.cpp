// moeflux man-page: for the build, which installs what it writes.
#include "cli/help/man_page.h"

#include <memory>

#include "base/atomic_file.h"
#include "cli/commands/commands.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

int run(const CommandLine& line, const std::string& directory,
        const std::vector<std::string>& arguments) {
  const CommandTree tree = line.tree();
  if (!directory.empty()) {
    write_file(directory + "/moeflux.1", man_page(tree));
    for (const CommandInfo& command : tree.commands)
      write_file(directory + "/moeflux-" + command.name + ".1", man_page(tree, command));
    return kSuccess;
  }
  if (arguments.empty()) {
    write_stdout(man_page(tree));
    return kSuccess;
  }
  const CommandInfo* command = tree.find(arguments[0]);
  if (command == nullptr) throw UsageError("no such command: " + arguments[0], "man-page");
  write_stdout(man_page(tree, *command));
  return kSuccess;
}

}  // namespace

void add_man_page_command(CommandLine& line) {
  const auto directory = std::make_shared<std::string>();
  Command& command = line.add("man-page", "Write man pages.");
  command.hide().without_config().arguments("[COMMAND]", 1);
  command.option("--directory", *directory, "PATH", "write the pages of all commands there");
  command.example("man-page run | man -l -").example("man-page --directory share/man/man1");
  command.run([directory, &line](const std::vector<std::string>& arguments) {
    return run(line, *directory, arguments);
  });
}

}  // namespace moeflux::cli
