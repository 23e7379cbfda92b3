// The commands and their options as data: what help, man pages and completions are written from.
#pragma once

#include <string>
#include <vector>

namespace moeflux::cli {

struct OptionInfo {
  std::vector<std::string> names;  // "-n", "--predict": short ones first
  std::string value;               // "N"; empty for a flag
  std::string help;
  std::string group;
};

struct CommandInfo {
  std::string name;
  std::string description;
  std::string usage;  // of the arguments that are no options
  std::vector<OptionInfo> options;
  std::vector<std::string> examples, notes;  // without the leading "moeflux "
};

struct CommandTree {
  std::string description;
  std::string version;                // one line
  std::vector<CommandInfo> commands;  // that --help lists
  std::vector<std::string> examples, notes;

  const CommandInfo* find(const std::string& name) const;  // null when there is none
};

}  // namespace moeflux::cli
