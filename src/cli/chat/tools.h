// Tools that a model may call in a chat. Each is a shell command in the end: the shell tool runs
// what the model writes, those of a file run a command of their own with the model's arguments.
// Nothing here asks the user; chat_tool_loop.h does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/chat/process.h"

namespace moeflux::cli {

// What running a call means.
struct ToolCommand {
  std::string command;                   // for /bin/sh
  std::vector<std::string> environment;  // ARG_name=value
  std::string input;                     // the arguments as JSON
  bool written_by_model = false;         // the command itself, not only its arguments
};

class ChatTools {
 public:
  void add_shell();
  // A JSON list of {"type": "function", "function": {"name", "description", "parameters"},
  // "command": "..."}. The command finds each argument that the parameters name in $ARG_name, texts
  // as they are and everything else as JSON, and all of them as JSON on standard input: never in
  // its own text, where a shell would read them. Throws Error(BadInput).
  void add_file(const std::string& path);

  bool empty() const { return tools_.empty(); }
  Json definitions() const;  // in OpenAI's form; null when there are none
  std::vector<std::string> names() const;

  // Throws Error(BadInput), with a message for the model, when there is no such tool or it cannot
  // be called so.
  ToolCommand resolve(const std::string& name, const std::string& arguments) const;

 private:
  struct Tool {
    std::string name;
    Json definition;
    std::optional<std::string> command;  // nothing: the shell tool
    std::vector<std::string> parameters;
  };
  void add(Tool tool);

  std::vector<Tool> tools_;
};

// What the model gets to read of it.
std::string tool_result_text(const CommandResult& result, const CommandLimits& limits);

}  // namespace moeflux::cli
