// Runs what a model calls, after the user has seen it and said yes.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "cli/chat/input.h"
#include "cli/chat/tools.h"
#include "text/replies/reply_parser.h"

namespace moeflux::cli {

enum class ToolConsent { Ask, Given };

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
