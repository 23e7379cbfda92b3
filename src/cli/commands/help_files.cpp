// moeflux completion: a script for the user's shell. moeflux man-page: for the build, which
// installs the pages it writes.
#include <memory>

#include "base/atomic_file.h"
#include "cli/commands/commands.h"
#include "cli/help.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

std::string script(const CommandTree& tree, const std::string& shell) {
  if (shell == "bash") return bash_completion(tree);
  if (shell == "zsh") return zsh_completion(tree);
  if (shell == "fish") return fish_completion(tree);
  throw UsageError(shell.empty() ? "which shell? bash, zsh or fish"
                                 : "no completion for " + shell + ": bash, zsh and fish have one");
}

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

int write_man_pages(const CommandLine& line, const std::string& directory,
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
  if (command == nullptr) throw UsageError("no such command: " + arguments[0]);
  write_stdout(man_page(tree, *command));
  return kSuccess;
}

}  // namespace

void add_completion_command(CommandLine& line) {
  Command& command = line.add("completion", "Write a script that completes commands in a shell.");
  command.without_config().arguments("bash|zsh|fish", 1);
  command.example("completion bash > ~/.local/share/bash-completion/completions/moeflux")
      .example("completion fish > ~/.config/fish/completions/moeflux.fish");
  command.note(
      "Where the program was installed with cmake --install, the scripts are there already.");
  command.run([&line](const std::vector<std::string>& arguments) {
    write_stdout(script(line.tree(), arguments.empty() ? "" : arguments[0]));
    return kSuccess;
  });
}

void add_man_page_command(CommandLine& line) {
  const auto directory = std::make_shared<std::string>();
  Command& command = line.add("man-page", "Write man pages.");
  command.hide().without_config().arguments("[COMMAND]", 1);
  command.option("--directory", *directory, "PATH", "write the pages of all commands there");
  command.example("man-page run | man -l -").example("man-page --directory share/man/man1");
  command.run([directory, &line](const std::vector<std::string>& arguments) {
    return write_man_pages(line, *directory, arguments);
  });
}

}  // namespace moeflux::cli
