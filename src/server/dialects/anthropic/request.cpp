#include "server/dialects/anthropic/request.h"

#include <fmt/format.h>

#include "server/dialects/anthropic/history.h"
#include "server/dialects/request_fields.h"

namespace moeflux {
namespace {

std::string required_type(const RequestFields& fields) {
  const auto type = fields.string("type");
  if (!type) fields.refuse("type", "is missing");
  return *type;
}

[[noreturn]] void refuse_value(const RequestFields& fields, std::string_view name,
                               const std::string& value, std::string_view known) {
  fields.refuse(name, fmt::format("is \"{}\", but must be {}", value.substr(0, 80), known));
}

// One tool in OpenAI's form; null for one without a schema, which only Anthropic's models know.
Json read_tool(const RequestFields& tool) {
  if (tool.string("type").value_or("custom") != "custom") return nullptr;
  const auto name = tool.string("name");
  if (!name || name->empty()) tool.refuse("name", "must be a string that is not empty");
  const Json* schema = tool.object("input_schema");
  if (schema == nullptr) tool.refuse("input_schema", "is missing");
  Json function = {{"name", *name}};
  if (const auto description = tool.string("description")) function["description"] = *description;
  function["parameters"] = *schema;
  return {{"type", "function"}, {"function", std::move(function)}};
}

Json read_tools(const RequestFields& fields) {
  const Json* tools = fields.array("tools");
  if (tools == nullptr) return nullptr;
  Json known = Json::array();
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const std::string where = fmt::format("tools.{}", i);
    if (!(*tools)[i].is_object()) fields.refuse(where, "must be an object");
    Json tool = read_tool(RequestFields((*tools)[i], where + "."));
    if (!tool.is_null()) known.push_back(std::move(tool));
  }
  return known;
}

void read_tool_choice(const RequestFields& fields, GenerationRequest& request) {
  const Json* given = fields.object("tool_choice");
  if (given == nullptr) return;
  const RequestFields choice(*given, "tool_choice.");
  const std::string type = required_type(choice);
  if (type == "tool") {
    const auto name = choice.string("name");
    if (!name) choice.refuse("name", "is missing");
    request.tool_choice = {{"type", "tool"}, {"name", *name}};
  } else if (type == "auto" || type == "any" || type == "none") {
    request.tool_choice = type;
  } else {
    refuse_value(choice, "type", type, "auto, any, tool or none");
  }
  request.parallel_tool_calls = !choice.boolean("disable_parallel_tool_use").value_or(false);
}

// How hard to think; whether to think at all is another field's matter.
ThinkingChoice read_effort(const RequestFields& fields) {
  const Json* config = fields.object("output_config");
  if (config == nullptr) return {};
  const auto effort = RequestFields(*config, "output_config.").string("effort");
  if (!effort) return {};
  return naming("output_config.effort", [&] { return thinking_of_effort(*effort); });
}

// Without a word about it there is no thinking, unlike in other dialects.
ThinkingChoice read_thinking(const RequestFields& fields) {
  ThinkingChoice choice = read_effort(fields);
  const Json* given = fields.object("thinking");
  if (given == nullptr) return {.enabled = false, .effort = {}, .budget = {}};
  const RequestFields thinking(*given, "thinking.");
  const std::string type = required_type(thinking);
  if (type == "disabled") return {.enabled = false, .effort = {}, .budget = {}};
  if (type != "enabled" && type != "adaptive")
    refuse_value(thinking, "type", type, "enabled, disabled or adaptive");
  choice.enabled = true;
  if (const auto budget = thinking.integer("budget_tokens", 1)) choice.budget = *budget;
  return choice;
}

bool read_shows_thoughts(const RequestFields& fields) {
  const Json* thinking = fields.object("thinking");
  if (thinking == nullptr) return true;
  const RequestFields inner(*thinking, "thinking.");
  const std::string display = inner.string("display").value_or("summarized");
  if (display != "summarized" && display != "omitted")
    refuse_value(inner, "display", display, "summarized or omitted");
  return display != "omitted";
}

// output_config.format, or output_format as it was called first.
OutputFormat read_output(const RequestFields& fields) {
  const Json* format = fields.object("output_format");
  std::string where = "output_format.";
  if (const Json* config = fields.object("output_config")) {
    if (const Json* inner = RequestFields(*config, "output_config.").object("format")) {
      format = inner;
      where = "output_config.format.";
    }
  }
  OutputFormat output;
  if (format == nullptr) return output;
  const RequestFields inner(*format, where);
  const std::string type = required_type(inner);
  if (type != "json_schema") refuse_value(inner, "type", type, "json_schema");
  const Json* schema = inner.object("schema");
  if (schema == nullptr) inner.refuse("schema", "is missing");
  output.kind = OutputFormat::Kind::JsonSchema;
  output.schema = *schema;
  return output;
}

}  // namespace

GenerationRequest read_anthropic_prompt(const Json& body) {
  const RequestFields fields(body);
  GenerationRequest request;
  request.messages = read_anthropic_messages(body);
  request.tools = read_tools(fields);
  read_tool_choice(fields, request);
  request.thinking = read_thinking(fields);
  return request;
}

AnthropicRequest read_anthropic_request(const Json& body) {
  const RequestFields fields(body);
  AnthropicRequest request{.generation = read_anthropic_prompt(body)};
  GenerationRequest& generation = request.generation;
  const auto max_tokens = fields.integer("max_tokens", 1);
  if (!max_tokens) fields.refuse("max_tokens", "is missing");
  generation.max_tokens = *max_tokens;
  generation.sampling = read_sampling(fields);
  generation.stop = read_stop(fields, "stop_sequences");
  generation.output = read_output(fields);
  request.shows_thoughts = read_shows_thoughts(fields);
  request.stream = fields.boolean("stream").value_or(false);
  generation.stream_arguments = request.stream;
  return request;
}

}  // namespace moeflux
