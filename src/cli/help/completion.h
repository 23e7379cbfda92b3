// Scripts that complete command lines in a shell, from the tree of commands.
#pragma once

#include <string>

#include "cli/command_tree.h"

namespace moeflux::cli {

std::string bash_completion(const CommandTree& tree);
std::string zsh_completion(const CommandTree& tree);
std::string fish_completion(const CommandTree& tree);

}  // namespace moeflux::cli
