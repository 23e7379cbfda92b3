#include "cli/chat/tool_runner.h"

#include "base/error.h"
#include "cli/chat/safe_text.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

constexpr std::size_t kMaxShownLines = 20;
constexpr const char* kQuestion = "run it? (y)es, (n)o, (a)lways, (e)dit: ";

std::string indented(const std::string& text, std::string_view first, std::string_view others) {
  std::string out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += at == 0 ? first : others;
    out.append(text, at, end - at);
    out += '\n';
    at = end + 1;
  }
  return out;
}

// The first lines of a long text.
std::string beginning(const std::string& text) {
  std::size_t end = 0;
  for (std::size_t n = 0; n < kMaxShownLines; ++n) {
    end = text.find('\n', end);
    if (end == std::string::npos) return text;
    ++end;
  }
  std::size_t more = 1;
  for (std::size_t i = end; i < text.size(); ++i) more += text[i] == '\n' ? 1 : 0;
  return fmt::format("{}[{} more lines]", std::string_view(text).substr(0, end), more);
}

}  // namespace

void ToolRunner::show_call(const ToolCall& call, const ToolCommand& command) const {
  std::string text = styled(fmt::format("call of {}", safe_line(call.name)), Style::Yellow, color_);
  if (!command.written_by_model) text += fmt::format(" {}", safe_line(call.arguments));
  write_stdout(fmt::format("{}\n{}", text, indented(safe_text(command.command), "  $ ", "    ")));
}

void ToolRunner::show_output(const std::string& text) const {
  if (text.empty()) return;
  std::string out = indented(beginning(safe_text(text)), "  ", "  ");
  out.pop_back();
  write_stdout(styled(out, Style::Dim, color_) + "\n");
}

ToolRunner::Decision ToolRunner::edit(ToolCommand& command) {
  const InputLine line = lines_.read("  $ ", command.command);
  if (line.end != InputEnd::Line) return Decision::Abort;
  if (line.text.find_first_not_of(" \t\n") == std::string::npos) return Decision::Decline;
  command.command = line.text;
  return Decision::Run;
}

ToolRunner::Decision ToolRunner::ask(const std::string& tool, ToolCommand& command) {
  while (true) {
    lines_.discard_pending();  // whatever it was, it is no answer to what was not asked yet
    const InputLine line = lines_.read(kQuestion);
    if (line.end != InputEnd::Line) return Decision::Abort;
    const std::string& answer = line.text;
    if (answer == "y" || answer == "yes") return Decision::Run;
    if (answer == "n" || answer == "no") return Decision::Decline;
    if (answer == "a" || answer == "always") {
      always_.insert(tool);
      return Decision::Run;
    }
    if (answer == "e" || answer == "edit") return edit(command);
  }
}

std::optional<std::string> ToolRunner::run(const ToolCall& call, const CommandLimits& limits,
                                           const std::function<bool()>& cancelled) {
  ToolCommand command;
  try {
    command = tools_.resolve(call.name, call.arguments);
  } catch (const Error& error) {
    write_stderr(fmt::format("moeflux: the model's call cannot be run: {}\n", error.what()));
    return fmt::format("error: {}", error.what());
  }
  show_call(call, command);
  const std::string proposed = command.command;
  const bool agreed = consent_ == ToolConsent::Given || always_.count(call.name) > 0;
  if (!agreed && !lines_.is_interactive()) {
    write_stderr(
        "moeflux: it is not run: there is no terminal to ask at (--no-ask runs tools without)\n");
    return "error: the user could not be asked, so it was not run";
  }
  const Decision decision = agreed ? Decision::Run : ask(call.name, command);
  if (decision == Decision::Abort) return std::nullopt;
  if (decision == Decision::Decline) return "The user does not want this to be run.";
  const CommandResult result =
      run_shell(command.command, command.environment, command.input, limits, cancelled);
  std::string text = tool_result_text(result, limits);
  show_output(text);
  if (command.command != proposed)
    text = fmt::format("[the user ran this instead: {}]\n{}", command.command, text);
  return text;
}

}  // namespace moeflux::cli
