// moeflux completion: a script for the user's shell.
#include "cli/help/completion.h"

#include "cli/commands/commands.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

std::string script(const CommandTree& tree, const std::string& shell) {
  if (shell == "bash") return bash_completion(tree);
  if (shell == "zsh") return zsh_completion(tree);
  if (shell == "fish") return fish_completion(tree);
  throw UsageError(shell.empty() ? "which shell? bash, zsh or fish"
                                 : "no completion for " + shell + ": bash, zsh and fish have one",
                   "completion");
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

}  // namespace moeflux::cli
