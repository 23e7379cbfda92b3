#include "text/replies/reply_tools.h"

#include "base/error.h"
#include "text/replies/reply_calls.h"
#include "text/replies/reply_json.h"
#include "text/replies/reply_markup.h"

namespace moeflux {
namespace {

bool has_tools(const Json& tools) {
  return tools.is_array() && !tools.empty();
}

std::string named_in(const Json& choice) {
  // {"type": "function", "function": {"name"}}, {"type": "function", "name"}, and Anthropic's
  // {"type": "tool", "name"}.
  const Json& holder = tool_function(choice);
  const auto name = holder.find("name");
  if (name == holder.end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    fail(Errc::BadInput, "\"tool_choice\": \"function.name\" must name a tool");
  }
  return name->get<std::string>();
}

ToolChoice choice_of_word(const std::string& word) {
  using Mode = ToolChoice::Mode;
  if (word == "auto") return {Mode::Auto};
  if (word == "none") return {Mode::None};
  if (word == "required" || word == "any") return {Mode::Required};
  fail(Errc::BadInput,
       "\"tool_choice\" is \"{}\", but must be auto, none, required or an object naming a function",
       word.substr(0, 80));
}

ToolChoice parse_choice(const Json& choice) {
  if (choice.is_null()) return {};
  if (choice.is_string()) return choice_of_word(choice.get<std::string>());
  if (!choice.is_object()) fail(Errc::BadInput, "\"tool_choice\" must be a string or an object");
  const auto type = choice.find("type");
  if (type != choice.end() && !type->is_string()) {
    fail(Errc::BadInput, "\"tool_choice.type\" must be a string");
  }
  const std::string kind = type == choice.end() ? "function" : type->get<std::string>();
  if (kind == "function" || kind == "tool") return {ToolChoice::Mode::Named, named_in(choice)};
  return choice_of_word(kind);
}

// The name when only one can be called; else "".
std::string only_name(const ToolChoice& choice, const Json& tools) {
  if (choice.mode == ToolChoice::Mode::Named) return choice.name;
  if (tools.size() != 1) return {};
  return tool_function(tools[0]).value("name", "");
}

}  // namespace

ToolChoice read_tool_choice(const Json& choice, const Json& tools) {
  const ToolChoice result = parse_choice(choice);
  const bool demands =
      result.mode == ToolChoice::Mode::Required || result.mode == ToolChoice::Mode::Named;
  if (demands && !has_tools(tools)) {
    fail(Errc::BadInput, "\"tool_choice\" demands a call, but the request has no \"tools\"");
  }
  if (result.mode == ToolChoice::Mode::Named && find_tool(tools, result.name) == nullptr) {
    fail(Errc::BadInput, "\"tool_choice\" names \"{}\", which is not among the \"tools\"",
         result.name.substr(0, 80));
  }
  return result;
}

Json tools_to_render(const ToolChoice& choice, const Json& tools) {
  if (choice.mode == ToolChoice::Mode::None || !has_tools(tools)) return nullptr;
  if (choice.mode != ToolChoice::Mode::Named) return tools;
  for (const Json& tool : tools) {
    if (tool_function(tool).value("name", "") == choice.name) return Json::array({tool});
  }
  return nullptr;
}

std::string forced_prefix(ReplyFormat format, const ToolChoice& choice, const Json& tools) {
  const bool demands =
      choice.mode == ToolChoice::Mode::Required || choice.mode == ToolChoice::Mode::Named;
  if (!demands || format == ReplyFormat::Plain || !has_tools(tools)) return {};
  const CallShape shape = call_shape(format);
  const std::string name = only_name(choice, tools);
  if (name.empty()) return shape.block_begin + shape.before_name;
  const bool json_name = format == ReplyFormat::Hermes;
  std::string written = json_name ? json_string(name).substr(1) : name;
  if (json_name) written.pop_back();
  return shape.block_begin + shape.before_name + written + shape.after_name;
}

}  // namespace moeflux
