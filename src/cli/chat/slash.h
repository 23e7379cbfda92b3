// Commands within a chat: "/name rest". Lines that begin with "//" are messages that begin with
// "/".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux::cli {

enum class SlashKind {
  Help,
  Clear,
  System,
  Save,
  Load,
  Sessions,
  Set,
  Show,
  Stats,
  Retry,
  Undo,
  Quit
};

struct SlashCommand {
  SlashKind kind;
  std::string rest;  // without the blanks around it
};

// Nothing: the line is a message. Throws Error(BadInput) for a command that does not exist, with
// the one that was meant.
std::optional<SlashCommand> parse_slash(std::string_view line);

// A message as it is sent: "//" becomes "/".
std::string unescape_slash(std::string_view line);

std::string slash_help();
std::vector<std::string> slash_names();  // with the slash

}  // namespace moeflux::cli
