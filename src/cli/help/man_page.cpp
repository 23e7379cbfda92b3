#include "cli/help/man_page.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace moeflux::cli {
namespace {

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

// Options of one group stand together, in the order in which groups first appear.
std::string option_sections(const CommandInfo& command) {
  std::vector<std::string> groups;
  for (const OptionInfo& option : command.options) {
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end())
      groups.push_back(option.group);
  }
  std::string text = ".SH OPTIONS\n";
  for (const std::string& group : groups) {
    text += fmt::format(".SS {}\n", roff(group));
    for (const OptionInfo& option : command.options) {
      if (option.group == group) text += option_text(option);
    }
  }
  return text;
}

std::string example_section(const std::vector<std::string>& examples) {
  if (examples.empty()) return "";
  std::string text = ".SH EXAMPLES\n.nf\n";
  for (const std::string& line : examples) text += roff("moeflux " + line) + "\n";
  return text + ".fi\n";
}

std::string note_section(const std::vector<std::string>& notes) {
  if (notes.empty()) return "";
  std::string text = ".SH NOTES\n.nf\n";
  for (const std::string& line : notes) text += roff(line) + "\n";
  return text + ".fi\n";
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

}  // namespace

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
  text += example_section(tree.examples) + note_section(tree.notes) +
          named_section("ENVIRONMENT", tree.environment) + named_section("FILES", tree.files) +
          kExitStatus;
  return text;
}

std::string man_page(const CommandTree& tree, const CommandInfo& command) {
  std::string text =
      heading("moeflux-" + command.name, as_phrase(command.description), tree.version);
  text += fmt::format(".SH SYNOPSIS\n\\fBmoeflux {}\\fR [\\fIOPTIONS\\fR] {}\n", roff(command.name),
                      roff(command.usage));
  text += option_sections(command) + example_section(command.examples) +
          note_section(command.notes) + named_section("ENVIRONMENT", environment_of(command));
  if (reads_files(command)) text += named_section("FILES", tree.files);
  text += kExitStatus;
  return text + ".SH SEE ALSO\n\\fBmoeflux\\fR(1)\n";
}

}  // namespace moeflux::cli
