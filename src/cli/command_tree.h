// The commands and their options as data: what help, man pages, completions and configuration files
// are about.
#pragma once

#include <string>
#include <vector>

namespace moeflux::cli {

enum class OptionKind { Flag, Text, Integer, Number, List };

struct OptionInfo {
  std::vector<std::string> names;  // "-n", "--predict": short ones first
  std::string value;               // "N"; empty for a flag
  std::string help;
  std::string group;
  OptionKind kind = OptionKind::Text;
  std::vector<std::string> defaults = {};  // built in; empty where there is none
  std::string environment = {};            // the variable that sets it, or ""
  bool secret = false;                     // never shown
  bool configurable = true;                // by environment and files

  std::string key() const {  // "predict": its name in a configuration file
    for (const std::string& name : names) {
      if (name.starts_with("--")) return name.substr(2);
    }
    return "";
  }
  bool names_a_file() const {  // by what its value is called
    return value == "FILE" || value == "PATH" || value == "DIR";
  }
};

struct CommandInfo {
  std::string name;
  std::string description;
  std::string usage;  // of the arguments that are no options
  std::vector<OptionInfo> options;
  std::vector<std::string> examples, notes;  // without the leading "moeflux "
};

struct NamedText {  // a file or an environment variable, and what it is for
  std::string name;
  std::string meaning;
};

struct CommandTree {
  std::string description;
  std::string version;                // one line
  std::vector<CommandInfo> commands;  // that --help lists
  std::vector<std::string> examples, notes;
  std::vector<NamedText> environment = {}, files = {};

  const CommandInfo* find(const std::string& name) const {  // null when there is none
    for (const CommandInfo& command : commands) {
      if (command.name == name) return &command;
    }
    return nullptr;
  }
};

}  // namespace moeflux::cli
