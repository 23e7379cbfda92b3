#include "cli/help/completion.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace moeflux::cli {
namespace {

bool names_a_file(const OptionInfo& option) {
  return option.names_a_file();
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

std::vector<std::string> command_names(const CommandTree& tree) {
  std::vector<std::string> names;
  for (const CommandInfo& command : tree.commands) names.push_back(command.name);
  return names;
}

// The names of all options of a command that `wanted` is true for.
template <class Wanted>
std::vector<std::string> option_names(const CommandInfo& command, Wanted wanted) {
  std::vector<std::string> names;
  for (const OptionInfo& option : command.options) {
    if (wanted(option)) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

std::string replaced(std::string_view text, std::string_view special, std::string_view escape) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += escape;
    out += c;
  }
  return out;
}

// Inside of single quotes, for zsh: brackets and colons end a description.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : replaced(text, "[]:\\", "\\")) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out;
}

std::string fish_text(std::string_view text) {
  return replaced(text, "'\\", "\\");
}

}  // namespace

std::string bash_completion(const CommandTree& tree) {
  std::string options, files, others;
  for (const CommandInfo& command : tree.commands) {
    const auto line = [&](const std::vector<std::string>& names) {
      return fmt::format("    {}) set=\"{}\" ;;\n", command.name, join(names, " "));
    };
    options += line(option_names(command, [](const OptionInfo&) { return true; }));
    files += line(option_names(command, names_a_file));
    others += line(option_names(command, [](const OptionInfo& option) {
      return !option.value.empty() && !names_a_file(option);
    }));
  }
  const auto lookup = [](std::string_view name, const std::string& cases) {
    return fmt::format(
        "_moeflux_{}() {{\n  local set=\n  case $1 in\n{}  esac\n  printf '%s' \" $set \"\n}}\n",
        name, cases);
  };
  return "# bash completion for moeflux\n" + lookup("options", options) + lookup("files", files) +
         lookup("values", others) +
         fmt::format(R"sh(
_moeflux() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$word"))
  elif [[ $(_moeflux_values "$command") == *" $before "* ]]; then
    return
  elif [[ $(_moeflux_files "$command") == *" $before "* || $word != -* ]]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  else
    COMPREPLY=($(compgen -W "$(_moeflux_options "$command")" -- "$word"))
  fi
}}
complete -F _moeflux moeflux
)sh",
                     join(command_names(tree), " "));
}

std::string zsh_completion(const CommandTree& tree) {
  std::string commands, cases;
  for (const CommandInfo& command : tree.commands) {
    commands += fmt::format("    '{}:{}'\n", command.name, zsh_text(command.description));
    cases += fmt::format("    {})\n      _arguments -s \\\n", command.name);
    for (const OptionInfo& option : command.options) {
      const std::string action = names_a_file(option) ? "_files" : "";
      const std::string value =
          option.value.empty() ? "" : fmt::format(":{}:{}", zsh_text(option.value), action);
      for (const std::string& name : option.names) {
        cases += fmt::format("        '*{}[{}]{}' \\\n", name, zsh_text(option.help), value);
      }
    }
    cases += "        '*:file:_files'\n      ;;\n";
  }
  return fmt::format(R"sh(#compdef moeflux
_moeflux() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
_moeflux "$@"
)sh",
                     commands, cases);
}

std::string fish_completion(const CommandTree& tree) {
  std::string text = "# fish completion for moeflux\n";
  for (const CommandInfo& command : tree.commands) {
    text += fmt::format("complete -c moeflux -n __fish_use_subcommand -f -a {} -d '{}'\n",
                        command.name, fish_text(command.description));
  }
  for (const CommandInfo& command : tree.commands) {
    for (const OptionInfo& option : command.options) {
      text += fmt::format("complete -c moeflux -n '__fish_seen_subcommand_from {}'", command.name);
      for (const std::string& name : option.names) {
        const bool is_long = name.starts_with("--");
        text += fmt::format(" {} {}", is_long ? "-l" : "-s", name.substr(is_long ? 2 : 1));
      }
      if (names_a_file(option)) {
        text += " -r -F";
      } else if (!option.value.empty()) {
        text += " -x";
      }
      text += fmt::format(" -d '{}'\n", fish_text(option.help));
    }
  }
  return text;
}

}  // namespace moeflux::cli
