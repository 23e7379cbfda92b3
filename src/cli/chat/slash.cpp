#include "cli/chat/slash.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/suggestion.h"
#include "cli/chat/safe_text.h"

namespace moeflux::cli {
namespace {

struct Known {
  const char* name;
  SlashKind kind;
  const char* arguments;
  const char* help;  // null: another name for the one before
};

constexpr Known kCommands[] = {
    {"help", SlashKind::Help, "", "this list"},
    {"?", SlashKind::Help, "", nullptr},
    {"clear", SlashKind::Clear, "", "begin a new conversation; the old one stays saved"},
    {"system", SlashKind::System, "[TEXT]", "show or set the system message (\"\": none)"},
    {"save", SlashKind::Save, "NAME", "keep the conversation under a name and go on in it"},
    {"load", SlashKind::Load, "NAME", "go on with a saved conversation"},
    {"sessions", SlashKind::Sessions, "", "list the saved conversations"},
    {"set", SlashKind::Set, "[KEY VALUE]", "change a setting; without a key: what there is"},
    {"show", SlashKind::Show, "", "model, session and settings"},
    {"stats", SlashKind::Stats, "", "what the last answer took"},
    {"retry", SlashKind::Retry, "", "answer the last question again"},
    {"undo", SlashKind::Undo, "", "take the last question and its answer back"},
    {"quit", SlashKind::Quit, "", "end the chat (also /exit, /bye, Ctrl-D)"},
    {"exit", SlashKind::Quit, "", nullptr},
    {"bye", SlashKind::Quit, "", nullptr},
};

std::string trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1));
}

}  // namespace

std::optional<SlashCommand> parse_slash(std::string_view line) {
  if (line.empty() || line[0] != '/' || line.substr(0, 2) == "//") return std::nullopt;
  const std::size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string name(line.substr(1, end - 1));
  for (const Known& known : kCommands)
    if (name == known.name) return SlashCommand{known.kind, trim(line.substr(end))};
  std::vector<std::string> names;
  for (const Known& known : kCommands) names.emplace_back(known.name);
  const std::string meant = closest(name, names);
  fail(Errc::BadInput, "there is no command /{}{}; /help lists them, // begins a message with /",
       safe_line(name), meant.empty() ? "" : fmt::format(", did you mean /{}?", meant));
}

std::string unescape_slash(std::string_view line) {
  return std::string(line.substr(line.substr(0, 2) == "//" ? 1 : 0));
}

std::string slash_help() {
  std::string text;
  for (const Known& known : kCommands) {
    if (known.help == nullptr) continue;
    text +=
        fmt::format("  {:<18}{}\n", fmt::format("/{} {}", known.name, known.arguments), known.help);
  }
  return text +
         "A message of several lines: between \"\"\" and \"\"\", with a backslash at the end of "
         "each "
         "line,\nor pasted. Ctrl-C stops an answer or clears the line, twice it ends the chat.\n";
}

std::vector<std::string> slash_names() {
  std::vector<std::string> names;
  for (const Known& known : kCommands) names.push_back(fmt::format("/{}", known.name));
  return names;
}

}  // namespace moeflux::cli
