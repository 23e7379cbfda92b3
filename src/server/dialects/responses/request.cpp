#include "server/dialects/responses/request.h"

#include <fmt/format.h>

#include "server/dialects/request_fields.h"
#include "server/dialects/responses/input.h"

namespace moeflux {
namespace {

void refuse_state(const RequestFields& fields) {
  for (const char* name : {"previous_response_id", "conversation", "prompt"}) {
    if (fields.find(name) != nullptr) {
      fields.refuse(name, "is not supported: this server keeps no responses; send the whole input");
    }
  }
  if (fields.boolean("background").value_or(false))
    fields.refuse("background", "is not supported: this server keeps no responses");
}

// {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]} is a
// choice among fewer tools.
ResponsesTools read_choice(const RequestFields& fields, GenerationRequest& request) {
  Json allowed = nullptr;
  if (const Json* choice = fields.find("tool_choice")) {
    request.tool_choice = *choice;
    const bool restricts =
        choice->is_object() && choice->contains("type") && choice->at("type") == "allowed_tools";
    if (restricts) {
      const RequestFields members(*choice, "tool_choice.");
      request.tool_choice = members.string("mode").value_or("auto");
      const Json* tools = members.array("tools");
      if (tools == nullptr) members.refuse("tools", "is missing");
      allowed = Json::array();
      for (const Json& tool : *tools) {
        if (tool.is_object() && tool.contains("name")) allowed.push_back(tool.at("name"));
      }
    }
  }
  ResponsesTools tools = read_responses_tools(fields, allowed);
  request.tools = tools.functions;
  return tools;
}

OutputFormat read_format(const RequestFields& fields) {
  OutputFormat output;
  const Json* text = fields.object("text");
  if (text == nullptr) return output;
  const Json* format = RequestFields(*text, "text.").object("format");
  if (format == nullptr) return output;
  const RequestFields members(*format, "text.format.");
  const std::string type = members.string("type").value_or("text");
  if (type == "json_object") {
    output.kind = OutputFormat::Kind::JsonObject;
  } else if (type == "json_schema") {
    const Json* schema = members.object("schema");
    if (schema == nullptr) members.refuse("schema", "is missing");
    output.kind = OutputFormat::Kind::JsonSchema;
    output.schema = *schema;
  } else if (type != "text") {
    members.refuse("type", fmt::format("is \"{}\", but must be text, json_object or json_schema",
                                       type.substr(0, 80)));
  }
  return output;
}

Json or_null(const Json* value) {
  return value == nullptr ? Json(nullptr) : *value;
}

Json or_else(const Json* value, Json otherwise) {
  return value == nullptr ? std::move(otherwise) : *value;
}

Json echo_of(const RequestFields& fields) {
  const Json* reasoning = fields.object("reasoning");
  const Json* text = fields.object("text");
  Json shown_text = or_else(text, Json::object());
  if (!shown_text.contains("format")) shown_text["format"] = {{"type", "text"}};
  Json shown_reasoning = {{"effort", nullptr}, {"summary", nullptr}};
  if (reasoning != nullptr) {
    const RequestFields members(*reasoning, "reasoning.");
    for (const char* name : {"effort", "summary"})
      shown_reasoning[name] = or_null(members.find(name));
  }
  return {{"instructions", or_null(fields.find("instructions"))},
          {"max_output_tokens", or_null(fields.find("max_output_tokens"))},
          {"parallel_tool_calls", fields.boolean("parallel_tool_calls").value_or(true)},
          {"reasoning", std::move(shown_reasoning)},
          {"temperature", or_null(fields.find("temperature"))},
          {"text", std::move(shown_text)},
          {"tool_choice", or_else(fields.find("tool_choice"), "auto")},
          {"tools", or_else(fields.array("tools"), Json::array())},
          {"top_p", or_null(fields.find("top_p"))},
          {"user", or_null(fields.find("user"))},
          {"metadata", or_else(fields.object("metadata"), Json::object())}};
}

}  // namespace

ResponsesRequest read_responses_request(const Json& body) {
  const RequestFields fields(body);
  refuse_state(fields);
  ResponsesRequest request;
  request.echo = echo_of(fields);
  request.stream = fields.boolean("stream").value_or(false);
  fields.boolean("store");  // either is fine: nothing is stored, and the response says so
  if (const Json* reasoning = fields.object("reasoning")) {
    const RequestFields members(*reasoning, "reasoning.");
    request.thought_as_summary = members.string("summary").value_or("") != "" ||
                                 members.string("generate_summary").has_value();
  }
  GenerationRequest& generation = request.generation;
  const Json* input = fields.find("input");
  if (input == nullptr) fields.refuse("input", "is missing");
  request.tools = read_choice(fields, generation);
  generation.messages =
      read_responses_input(*input, fields.string("instructions").value_or(""), request.tools);
  generation.messages_field = "input";
  generation.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  generation.stream_arguments = request.stream;
  generation.thinking = naming("reasoning", [&] { return read_thinking(body); });
  if (const Json* variables = fields.object("chat_template_kwargs"))
    generation.template_variables = *variables;
  generation.output = read_format(fields);
  generation.sampling = read_sampling(fields);
  generation.max_tokens = fields.integer("max_output_tokens", 1).value_or(0);
  return request;
}

}  // namespace moeflux
