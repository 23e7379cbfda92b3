#include "cli/chat/tools.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/chat/safe_text.h"

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

}  // namespace moeflux::cli
