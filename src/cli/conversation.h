// The chat a command hands to the model's template.
#pragma once

#include <optional>
#include <string>

#include "cli/command_line.h"
#include "engine/engine.h"

namespace moeflux::cli {

struct ConversationOptions {
  std::optional<std::string> messages;  // file
  std::optional<std::string> tools;     // file
  std::optional<std::string> system;
  std::optional<std::string> kwargs;  // JSON object
  bool no_think = false;

  bool any() const { return messages || tools || system || kwargs || no_think; }
};

// --messages, --tools, --no-think, --kwargs; --system is the caller's.
void add_conversation_options(Command& command, ConversationOptions& options);

// The messages of the file, a system message before them, `prompt` as the user's last one; any of
// them may be missing, but not all. The file is a list of messages, or an object with "messages"
// and perhaps "tools".
ChatRequest make_conversation(const ConversationOptions& options,
                              const std::optional<std::string>& prompt);

// The value of --kwargs. Throws UsageError.
Json parse_kwargs(const std::string& text);

// Whether the model may call tools: some checkpoints have a template of their own for that.
bool has_tools(const ChatRequest& chat);

}  // namespace moeflux::cli
