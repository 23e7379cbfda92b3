#include "cli/chat/tools.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

constexpr const char* kShell = "shell";
constexpr std::size_t kMaxTools = 128;
constexpr std::uint64_t kMaxFile = 4u << 20;
constexpr std::size_t kMaxValue = 100000;  // of one environment variable; the system allows 128 KiB

bool is_variable_name(const std::string& name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), good);
}

Json function(const std::string& name, const std::string& description, const Json& parameters) {
  return {{"type", "function"},
          {"function", {{"name", name}, {"description", description}, {"parameters", parameters}}}};
}

void check_text(const std::string& text, const std::string& what) {
  if (text.find('\0') != std::string::npos) fail(Errc::BadInput, "{} contains a zero byte", what);
  if (text.size() > kMaxValue)
    fail(Errc::BadInput, "{} has {} bytes, more than {}", what, text.size(), kMaxValue);
}

std::vector<std::string> parameter_names(const Json& parameters, const std::string& origin) {
  std::vector<std::string> names;
  if (!parameters.is_object() || !parameters.contains("properties")) return names;
  const Json& properties = parameters["properties"];
  if (!properties.is_object()) fail(Errc::BadInput, "{}: \"properties\" is no object", origin);
  for (const auto& [name, schema] : properties.items()) {
    if (!is_variable_name(name))
      fail(Errc::BadInput, "{}: the parameter \"{}\" must be letters, digits and _", origin, name);
    names.push_back(name);
  }
  return names;
}

constexpr std::size_t kMaxShownLines = 20;
constexpr const char* kQuestion = "run it? (y)es, (n)o, (a)lways, (e)dit: ";

std::string indented(const std::string& text, std::string_view first, std::string_view others) {
  std::string out;
  for (const std::string& line : split(text, '\n'))
    out += fmt::format("{}{}\n", out.empty() ? first : others, line);
  return out;
}

// The first lines of a long text.
std::string first_lines(const std::string& text) {
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

void ChatTools::add(Tool tool) {
  for (const Tool& other : tools_)
    if (other.name == tool.name) fail(Errc::BadInput, "the tool \"{}\" is there twice", tool.name);
  if (tools_.size() == kMaxTools) fail(Errc::LimitExceeded, "more than {} tools", kMaxTools);
  tools_.push_back(std::move(tool));
}

void ChatTools::add_shell() {
  const Json parameters = {
      {"type", "object"},
      {"properties",
       {{"command", {{"type", "string"}, {"description", "The command, for /bin/sh."}}}}},
      {"required", {"command"}}};
  add({kShell,
       function(kShell,
                "Run a shell command on the user's computer and get its output. The user is asked "
                "before it runs.",
                parameters),
       std::nullopt,
       {"command"}});
}

void ChatTools::add_file(const std::string& path) {
  const Json file = read_json_file(path, kMaxFile);
  if (!file.is_array()) fail(Errc::BadInput, "{}: expected a list of tools", path);
  int index = 0;
  for (const Json& entry : file) {
    const std::string origin = fmt::format("{}: tool {}", path, index++);
    const JsonFields fields(entry, origin);
    const Json* wrapped = fields.find("function");
    const JsonFields inner(wrapped == nullptr ? entry : *wrapped, origin);
    const std::string name = inner.string("name");
    const Json* parameters = inner.find("parameters");
    Tool tool{name, {}, fields.string("command"), {}};
    if (!is_variable_name(name))
      fail(Errc::BadInput, "{}: the name must be letters, digits and _", origin);
    check_text(*tool.command, origin + ": the command");
    const Json schema = parameters == nullptr
                            ? Json{{"type", "object"}, {"properties", Json::object()}}
                            : *parameters;
    tool.parameters = parameter_names(schema, origin);
    tool.definition = function(name, inner.string_or("description", ""), schema);
    add(std::move(tool));
  }
}

Json ChatTools::definitions() const {
  if (tools_.empty()) return nullptr;
  Json list = Json::array();
  for (const Tool& tool : tools_) list.push_back(tool.definition);
  return list;
}

std::vector<std::string> ChatTools::names() const {
  std::vector<std::string> names;
  for (const Tool& tool : tools_) names.push_back(tool.name);
  return names;
}

ToolCommand ChatTools::resolve(const std::string& name, const std::string& arguments) const {
  const auto tool = std::find_if(tools_.begin(), tools_.end(),
                                 [&](const Tool& each) { return each.name == name; });
  if (tool == tools_.end())
    fail(Errc::BadInput, "there is no tool \"{}\"; there are: {}", safe_line(name),
         fmt::join(names(), ", "));
  const Json given = parse_json(arguments.empty() ? "{}" : arguments, "the arguments");
  if (!given.is_object()) fail(Errc::BadInput, "the arguments must be a JSON object");
  ToolCommand result;
  if (!tool->command) {
    result.command = JsonFields(given, "the arguments").string("command");
    result.written_by_model = true;
    check_text(result.command, "the command");
    if (result.command.find_first_not_of(" \t\n") == std::string::npos)
      fail(Errc::BadInput, "the command is empty");
    return result;
  }
  result.command = *tool->command;
  result.input = dump_json(given);
  for (const std::string& parameter : tool->parameters) {
    if (!given.contains(parameter)) continue;
    const Json& value = given[parameter];
    const std::string text = value.is_string() ? value.get<std::string>() : dump_json(value);
    check_text(text, fmt::format("the argument \"{}\"", parameter));
    result.environment.push_back(fmt::format("ARG_{}={}", parameter, text));
  }
  return result;
}

std::string tool_result_text(const CommandResult& result, const CommandLimits& limits) {
  std::string text = replace_invalid_utf8(result.output);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const auto remark = [&text](const std::string& line) {
    if (!text.empty()) text += '\n';
    text += line;
  };
  if (result.n_cut > 0) remark(fmt::format("[{} more bytes of output were cut off]", result.n_cut));
  if (result.timed_out) {
    remark(fmt::format("[stopped after {} seconds]", limits.seconds));
  } else if (result.cancelled) {
    remark("[stopped by the user]");
  } else if (result.exit_code != 0) {
    remark(fmt::format("[exit code {}]", result.exit_code));
  }
  return text;
}

void ToolRunner::show_call(const ToolCall& call, const ToolCommand& command) const {
  std::string text = styled(fmt::format("call of {}", safe_line(call.name)), Style::Yellow, color_);
  if (!command.written_by_model) text += fmt::format(" {}", safe_line(call.arguments));
  write_stdout(fmt::format("{}\n{}", text, indented(safe_text(command.command), "  $ ", "    ")));
}

void ToolRunner::show_output(const std::string& text) const {
  if (text.empty()) return;
  std::string out = indented(first_lines(safe_text(text)), "  ", "  ");
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
