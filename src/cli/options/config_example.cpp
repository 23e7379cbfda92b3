// The commented file that `moeflux config init` writes.
#include <algorithm>

#include <fmt/format.h>

#include "cli/options/config.h"

namespace moeflux::cli {
namespace {

constexpr const char* kIntroduction =
    "# Options of moeflux. What the command line or the environment say goes before this file.\n"
    "# Options at the top are for every command that has them; those in a section such as [serve]\n"
    "# are for that command only, and every command may have one. Take away the # to set an\n"
    "# option. moeflux config show tells what is set and by whom.\n";

// Those that people start with the same options again and again.
constexpr const char* kCommands[] = {"run", "chat", "serve"};

bool has(const CommandInfo& command, const std::string& key) {
  return std::any_of(command.options.begin(), command.options.end(), [&](const OptionInfo& option) {
    return option.configurable && option.key() == key;
  });
}

// A value to begin with: the default, or one that shows the form.
std::string sample(const OptionInfo& option) {
  if (option.secret) return option.kind == OptionKind::List ? "[\"...\"]" : "\"...\"";
  if (option.kind == OptionKind::Flag) return "true";
  if (option.kind == OptionKind::List) return "[]";
  const bool is_number = option.kind != OptionKind::Text;
  if (option.defaults.empty()) return is_number ? "0" : "\"\"";
  return is_number ? option.defaults[0] : toml_string(option.defaults[0]);
}

}  // namespace

std::string example_config(const CommandTree& tree) {
  std::vector<const CommandInfo*> commands;
  for (const char* name : kCommands) {
    if (const CommandInfo* command = tree.find(name)) commands.push_back(command);
  }
  const auto is_shared = [&](const OptionInfo& option) {
    return std::all_of(commands.begin(), commands.end(),
                       [&](const CommandInfo* command) { return has(*command, option.key()); });
  };
  std::string top, sections;
  for (const CommandInfo* command : commands) {
    sections += fmt::format("\n\n# [{}]\n", command->name);
    for (const OptionInfo& option : command->options) {
      if (!option.configurable) continue;
      const bool shared = is_shared(option);
      if (shared && command != commands[0]) continue;
      (shared ? top : sections) +=
          fmt::format("\n# {}\n# {} = {}\n", option.help, option.key(), sample(option));
    }
  }
  return kIntroduction + top + sections;
}

}  // namespace moeflux::cli
