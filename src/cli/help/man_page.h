// Man pages, in the macros that every `man` reads, from the tree of commands.
#pragma once

#include <string>

#include "cli/command_tree.h"

namespace moeflux::cli {

std::string man_page(const CommandTree& tree);                              // moeflux(1)
std::string man_page(const CommandTree& tree, const CommandInfo& command);  // moeflux-run(1)

}  // namespace moeflux::cli
