#include "cli/help/help_text.h"

#include <algorithm>

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

// Options of one group stand together, in the order in which groups first appear.
std::string option_groups(const CommandInfo& command) {
  std::vector<std::string> groups;
  for (const OptionInfo& option : command.options) {
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end())
      groups.push_back(option.group);
  }
  std::string text;
  for (const std::string& group : groups) {
    text += fmt::format("\n{}:\n", group);
    for (const OptionInfo& option : command.options) {
      if (option.group == group) text += option_line(option);
    }
  }
  return text;
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

}  // namespace moeflux::cli
