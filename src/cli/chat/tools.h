// Tools that a model may call in a chat. Each is a shell command in the end: the shell tool runs
// what the model writes, those of a file run a command of their own with the model's arguments.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/chat/input.h"
#include "text/replies/reply_parser.h"

namespace moeflux::cli {

struct CommandLimits {
  double seconds = 60;
  std::size_t output_bytes = 64 << 10;  // more is read and counted, but not kept
};

struct CommandResult {
  std::string output;     // standard output and standard error as they came
  std::size_t n_cut = 0;  // bytes of it that were not kept
  int exit_code = 0;      // 128 + signal when one ended it
  bool timed_out = false, cancelled = false;
};

// `command` for /bin/sh; `environment` is added to the program's own, as "NAME=value"; `input`
// stands on standard input. `cancelled` is asked every few milliseconds. When the time is over or
// it is cancelled, the whole group is asked to end and soon killed; processes left in the
// background are killed when the command ends. Throws Error(Io) when it cannot be started.
CommandResult run_shell(const std::string& command, const std::vector<std::string>& environment,
                        const std::string& input, const CommandLimits& limits,
                        const std::function<bool()>& cancelled);

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

enum class ToolConsent { Ask, Given };

// Runs what a model calls, after the user has seen it and said yes.
class ToolRunner {
 public:
  // References must outlive it.
  ToolRunner(const ChatTools& tools, LineSource& lines, ToolConsent consent, bool color)
      : tools_(tools), lines_(lines), consent_(consent), color_(color) {}

  // What the model gets to read: the output, or why there is none. Nothing: the user wants the turn
  // to end.
  std::optional<std::string> run(const ToolCall& call, const CommandLimits& limits,
                                 const std::function<bool()>& cancelled);

 private:
  enum class Decision { Run, Decline, Abort };
  void show_call(const ToolCall& call, const ToolCommand& command) const;
  void show_output(const std::string& text) const;
  Decision ask(const std::string& tool, ToolCommand& command);
  Decision edit(ToolCommand& command);

  const ChatTools& tools_;
  LineSource& lines_;
  ToolConsent consent_;
  bool color_;
  std::set<std::string> always_;  // tools the user has agreed to once for all
};

}  // namespace moeflux::cli
