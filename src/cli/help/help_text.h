// What --help prints, from the tree of commands.
#pragma once

#include <string>

#include "cli/command_tree.h"

namespace moeflux::cli {

std::string help_text(const CommandTree& tree);     // of the program
std::string help_text(const CommandInfo& command);  // of one command

}  // namespace moeflux::cli
