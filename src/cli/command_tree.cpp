#include "cli/command_tree.h"

#include <algorithm>

namespace moeflux::cli {

std::string OptionInfo::key() const {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [](const std::string& name) { return name.starts_with("--"); });
  return found == names.end() ? "" : found->substr(2);
}

bool OptionInfo::names_a_file() const {
  return value == "FILE" || value == "PATH" || value == "DIR";
}

const CommandInfo* CommandTree::find(const std::string& name) const {
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&](const CommandInfo& command) { return command.name == name; });
  return found == commands.end() ? nullptr : &*found;
}

}  // namespace moeflux::cli
