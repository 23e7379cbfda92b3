#include "cli/help.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace moeflux::cli {
namespace {

constexpr std::size_t kOptionColumn = 30, kNameColumn = 20;

// "  left      right", with the right part on a line of its own when the left one is too long.
std::string columns(const std::string& left, std::size_t width, const std::string& right) {
  if (left.size() < width) return fmt::format("{:<{}}{}\n", left, width, right);
  return fmt::format("{}\n{:{}}{}\n", left, "", width, right);
}

// "  -n, --predict N", so that the long names stand below each other.
std::string option_line(const OptionInfo& option) {
  std::string left = option.names[0].starts_with("--") ? "      " : "  ";
  left += fmt::format("{}", fmt::join(option.names, ", "));
  if (!option.value.empty()) left += " " + option.value;
  return columns(left, kOptionColumn, option.help);
}

// The options in the order in which their groups first appear, under the titles of these.
template <class Title, class Line>
std::string by_group(const CommandInfo& command, Title title, Line line) {
  std::vector<std::string> groups;
  for (const OptionInfo& option : command.options) {
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end())
      groups.push_back(option.group);
  }
  std::string text;
  for (const std::string& group : groups) {
    text += title(group);
    for (const OptionInfo& option : command.options) {
      if (option.group == group) text += line(option);
    }
  }
  return text;
}

std::string option_groups(const CommandInfo& command) {
  return by_group(
      command, [](const std::string& group) { return fmt::format("\n{}:\n", group); }, option_line);
}

std::string example_lines(const std::vector<std::string>& examples) {
  std::string text = examples.empty() ? "" : "\nExamples:\n";
  for (const std::string& line : examples) text += fmt::format("  moeflux {}\n", line);
  return text;
}

std::string note_lines(const std::vector<std::string>& notes) {
  std::string text = notes.empty() ? "" : "\n";
  for (const std::string& line : notes) text += line + "\n";
  return text;
}

std::string named_lines(const char* title, const std::vector<NamedText>& items) {
  std::string text = items.empty() ? "" : fmt::format("\n{}:\n", title);
  for (const NamedText& item : items) text += columns("  " + item.name, kNameColumn, item.meaning);
  return text;
}

// As roff reads it: a backslash, a dash and a dot at the beginning of a line mean something.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool line_begins = out.empty() || out.back() == '\n';
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

// "Let a model answer a prompt." -> "let a model answer a prompt"
std::string as_phrase(std::string text) {
  if (!text.empty() && text.back() == '.') text.pop_back();
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] + 32);
  return text;
}

std::string heading(const std::string& name, const std::string& phrase,
                    const std::string& version) {
  return fmt::format(".TH {} 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n",
                     roff(upper(name)), roff(version.substr(0, version.find(" ("))), roff(name),
                     roff(phrase));
}

std::string option_text(const OptionInfo& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(name));
  if (!option.value.empty()) names += fmt::format(" \\fI{}\\fR", roff(option.value));
  return fmt::format(".TP\n{}\n{}\n", names, roff(option.help));
}

std::string option_sections(const CommandInfo& command) {
  return ".SH OPTIONS\n" +
         by_group(
             command, [](const std::string& group) { return fmt::format(".SS {}\n", roff(group)); },
             option_text);
}

std::string lines_section(const char* title, const std::string& before,
                          const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text = fmt::format(".SH {}\n.nf\n", title);
  for (const std::string& line : lines) text += roff(before + line) + "\n";
  return text + ".fi\n";
}

// What both kinds of page end with.
std::string examples_and_notes(const std::vector<std::string>& examples,
                               const std::vector<std::string>& notes) {
  return lines_section("EXAMPLES", "moeflux ", examples) + lines_section("NOTES", "", notes);
}

std::string named_section(const char* title, const std::vector<NamedText>& items) {
  std::string text = items.empty() ? "" : fmt::format(".SH {}\n", title);
  for (const NamedText& item : items)
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(item.name), roff(item.meaning));
  return text;
}

// The variables that set options of the command.
std::vector<NamedText> environment_of(const CommandInfo& command) {
  std::vector<NamedText> items;
  for (const OptionInfo& option : command.options) {
    if (!option.environment.empty())
      items.push_back({option.environment, "sets --" + option.key() + " where it is not given"});
  }
  return items;
}

bool reads_files(const CommandInfo& command) {
  return std::any_of(command.options.begin(), command.options.end(),
                     [](const OptionInfo& option) { return option.key() == "config"; });
}

constexpr const char* kExitStatus =
    ".SH EXIT STATUS\n.TP\n0\nsuccess\n.TP\n1\nfailure, with a message on standard error\n.TP\n2\n"
    "the command line is wrong\n.TP\n130\ninterrupted\n";

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

std::string help_text(const CommandTree& tree) {
  std::string text = fmt::format(
      "{}\n\nUsage: moeflux COMMAND [OPTIONS] [ARGUMENTS...]\n\nCommands:\n", tree.description);
  for (const CommandInfo& command : tree.commands)
    text += fmt::format("  {:<12}{}\n", command.name, command.description);
  text +=
      "\nOptions:\n  -h, --help  show this, or the help of a command\n  --version   show the "
      "version\n";
  return text + example_lines(tree.examples) + note_lines(tree.notes) +
         named_lines("Environment", tree.environment) + named_lines("Files", tree.files);
}

std::string help_text(const CommandInfo& command) {
  return fmt::format("{}\n\nUsage: moeflux {} [OPTIONS]{}{}\n", command.description, command.name,
                     command.usage.empty() ? "" : " ", command.usage) +
         option_groups(command) + example_lines(command.examples) + note_lines(command.notes);
}

std::string man_page(const CommandTree& tree) {
  std::string text =
      heading("moeflux", "run mixture-of-experts models that are larger than memory", tree.version);
  text +=
      ".SH SYNOPSIS\n\\fBmoeflux\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR...]\n";
  text += fmt::format(".SH DESCRIPTION\n{}\n.SH COMMANDS\n", roff(tree.description));
  for (const CommandInfo& command : tree.commands) {
    text += fmt::format(".TP\n\\fBmoeflux\\-{}\\fR(1)\n{}\n", roff(command.name),
                        roff(command.description));
  }
  text += examples_and_notes(tree.examples, tree.notes) +
          named_section("ENVIRONMENT", tree.environment) + named_section("FILES", tree.files) +
          kExitStatus;
  return text;
}

std::string man_page(const CommandTree& tree, const CommandInfo& command) {
  std::string text =
      heading("moeflux-" + command.name, as_phrase(command.description), tree.version);
  text += fmt::format(".SH SYNOPSIS\n\\fBmoeflux {}\\fR [\\fIOPTIONS\\fR] {}\n", roff(command.name),
                      roff(command.usage));
  text += option_sections(command) + examples_and_notes(command.examples, command.notes) +
          named_section("ENVIRONMENT", environment_of(command));
  if (reads_files(command)) text += named_section("FILES", tree.files);
  text += kExitStatus;
  return text + ".SH SEE ALSO\n\\fBmoeflux\\fR(1)\n";
}

std::string bash_completion(const CommandTree& tree) {
  std::string options, files, others;
  for (const CommandInfo& command : tree.commands) {
    const auto line = [&](const std::vector<std::string>& names) {
      return fmt::format("    {}) set=\"{}\" ;;\n", command.name, join(names, " "));
    };
    options += line(option_names(command, [](const OptionInfo&) { return true; }));
    files += line(option_names(command, std::mem_fn(&OptionInfo::names_a_file)));
    others += line(option_names(command, [](const OptionInfo& option) {
      return !option.value.empty() && !option.names_a_file();
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
      const std::string action = option.names_a_file() ? "_files" : "";
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
      if (option.names_a_file()) {
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
