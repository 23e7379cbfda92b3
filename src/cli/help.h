// Help, man pages and shell completions, all from the tree of commands.
#pragma once

#include <string>

#include "cli/command_tree.h"

namespace moeflux::cli {

// For --help.
std::string help_text(const CommandTree& tree);     // of the program
std::string help_text(const CommandInfo& command);  // of one command

// Man pages, in the macros that every `man` reads.
std::string man_page(const CommandTree& tree);                              // moeflux(1)
std::string man_page(const CommandTree& tree, const CommandInfo& command);  // moeflux-run(1)

// Scripts that complete command lines in a shell.
std::string bash_completion(const CommandTree& tree);
std::string zsh_completion(const CommandTree& tree);
std::string fish_completion(const CommandTree& tree);

}  // namespace moeflux::cli
