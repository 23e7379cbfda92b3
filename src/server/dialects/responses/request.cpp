#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "server/dialects/base64.h"
#include "server/dialects/request_fields.h"
#include "server/dialects/responses/responses.h"
#include "text/replies/reply_history.h"

namespace moeflux {
namespace {

// ---- tools

// What clients call the namespace of functions that are in none.
constexpr std::string_view kNoSpace = "functions";

// Thoughts as clients give them back unread. Nothing is encrypted: they are the client's own.
constexpr std::string_view kSealed = "moeflux:";

std::string read_sealed_thought(const std::string& text) {
  const auto bytes = from_base64(text);
  return bytes && bytes->starts_with(kSealed) ? bytes->substr(kSealed.size()) : "";
}

class ToolReader {
 public:
  explicit ToolReader(const Json& allowed) : allowed_(allowed) { tools_.functions = Json::array(); }

  void read(const Json& tools, const std::string& space, const std::string& where) {
    for (std::size_t i = 0; i < tools.size(); ++i) {
      const std::string at = fmt::format("{}[{}]", where, i);
      if (!tools[i].is_object()) throw bad_request(at + " must be an object", "tools");
      const RequestFields members(tools[i], at + ".");
      const std::string type = members.string("type").value_or("function");
      if (type == "function")
        add(tools[i], members, space, at);
      else if (type == "namespace" && space.empty())
        read_space(members, at);
    }
  }

  ResponsesTools finish() { return std::move(tools_); }

 private:
  void read_space(const RequestFields& members, const std::string& at) {
    const std::string name = members.required_string("name");
    if (name.empty()) members.refuse("name", "is missing");
    const Json* tools = members.array("tools");
    if (tools != nullptr) read(*tools, name == kNoSpace ? "" : name, at + ".tools");
  }

  void add(const Json& tool, const RequestFields& members, const std::string& space,
           const std::string& at) {
    const Json* nested = members.object("function");  // as /v1/chat/completions has it
    const RequestFields given(nested == nullptr ? tool : *nested, at + ".");
    Json function = Json::object();
    for (const char* key : {"name", "description", "parameters"}) {
      if (const Json* value = given.find(key)) function[key] = *value;
    }
    const Json name = function.value("name", Json());
    if (!allowed_.is_null() && std::find(allowed_.begin(), allowed_.end(), name) == allowed_.end())
      return;
    if (!space.empty() && name.is_string()) {
      function["name"] = free_name(space, name.get<std::string>());
      tools_.names[function["name"].get<std::string>()] = {space, name.get<std::string>()};
    }
    if (name.is_string()) taken_.insert(function["name"].get<std::string>());
    tools_.functions.push_back({{"type", "function"}, {"function", std::move(function)}});
  }

  // Its own, unless another function has that.
  std::string free_name(const std::string& space, const std::string& name) const {
    if (!taken_.contains(name)) return name;
    return space + (space.ends_with("__") ? "" : "__") + name;
  }

  const Json& allowed_;
  ResponsesTools tools_;
  std::set<std::string> taken_;
};

// Only functions can be called; tools that the hosts of other models run themselves are left out.
// `allowed` are the names that may be called, or null for all.
ResponsesTools read_tool_list(const RequestFields& fields, const Json& allowed) {
  const Json* tools = fields.array("tools");
  if (tools == nullptr) return {};
  ToolReader reader(allowed);
  reader.read(*tools, "", "tools");
  return reader.finish();
}

// ---- the input, as the messages of a chat

// What a model wrote in one turn comes as several items and becomes one message again. The messages
// are in the form of text/replies/reply_history.h.
class InputReader {
 public:
  InputReader(const std::string& instructions, const ResponsesTools& tools,
              const ResponseStore& store)
      : tools_(tools), store_(store) {
    if (!instructions.empty()) add({{"role", "system"}, {"content", instructions}});
  }

  void read(const Json& item, const std::string& where) {
    if (!item.is_object()) throw bad_request(where + " must be an object", where);
    const RequestFields fields(item, where + ".");
    const std::string type = fields.string("type").value_or("message");
    if (type == "message")
      read_message(fields, where);
    else if (type == "function_call")
      read_call(fields);
    else if (type == "function_call_output")
      read_output(fields, where);
    else if (type == "reasoning")
      read_reasoning(fields);
    else if (type == "item_reference")
      read_reference(fields, where);
    else
      fields.refuse("type",
                    fmt::format("is \"{}\", which this server does not read; there are "
                                "message, function_call, function_call_output and reasoning",
                                type.substr(0, 80)));
  }

  Json finish() {
    end_turn();
    return std::move(messages_);
  }

 private:
  void add(Json message) {
    end_turn();
    messages_.push_back(std::move(message));
  }

  // A thought that nothing followed is of no use to a template.
  void end_turn() {
    if (turn_.contains("content") || turn_.contains("tool_calls")) {
      if (!turn_.contains("content")) turn_["content"] = "";
      turn_["role"] = "assistant";
      messages_.push_back(std::move(turn_));
    }
    turn_ = Json::object();
  }

  void read_reference(const RequestFields& fields, const std::string& where) {
    const std::string id = fields.required_string("id");
    const auto item = store_.item(id);
    if (!item || item->value("type", "") == "item_reference") {
      fields.refuse("id", fmt::format("is \"{}\", but no item with this id is kept; send it whole",
                                      id.substr(0, 80)));
    }
    read(*item, where);
  }

  static Json read_content(const RequestFields& fields, const char* name,
                           const std::string& where) {
    const Json* content = fields.find(name);
    if (content == nullptr) fields.refuse(name, "is missing");
    const std::string place = fmt::format("{}.{}", where, name);
    return naming(place, [&] { return normalize_content(*content, place); });
  }

  void read_message(const RequestFields& fields, const std::string& where) {
    const std::string role = fields.required_string("role");
    const std::array<std::string_view, 4> roles = {"user", "assistant", "system", "developer"};
    if (std::find(roles.begin(), roles.end(), role) == roles.end())
      fields.refuse_value("role", role, "user, assistant, system or developer");
    Json content = read_content(fields, "content", where);
    if (role != "assistant") return add({{"role", role}, {"content", std::move(content)}});
    if (turn_.contains("content") || turn_.contains("tool_calls")) end_turn();
    turn_["content"] = std::move(content);
  }

  void read_call(const RequestFields& fields) {
    const std::string name = fields.required_string("name");
    if (name.empty()) fields.refuse("name", "is missing");
    const std::string shown = tools_.shown(fields.string("namespace").value_or(""), name);
    turn_["tool_calls"].push_back(
        {{"id", fields.required_string("call_id")},
         {"type", "function"},
         {"function", {{"name", shown}, {"arguments", fields.string("arguments").value_or("")}}}});
  }

  void read_output(const RequestFields& fields, const std::string& where) {
    add({{"role", "tool"},
         {"tool_call_id", fields.required_string("call_id")},
         {"content", read_content(fields, "output", where)}});
  }

  static std::string joined_text(const RequestFields& fields, const char* name) {
    std::string text;
    const Json* parts = fields.array(name);
    if (parts == nullptr) return text;
    for (const Json& part : *parts) {
      const auto found = part.is_object() ? part.find("text") : part.end();
      if (found == part.end() || !found->is_string())
        fields.refuse(name, "must be a list of parts with text");
      text += (text.empty() ? "" : "\n\n") + found->get<std::string>();
    }
    return text;
  }

  // The thought itself where it is given, else what we gave for it, else its summary.
  void read_reasoning(const RequestFields& fields) {
    if (turn_.contains("content") || turn_.contains("tool_calls")) end_turn();
    std::string thought = joined_text(fields, "content");
    if (thought.empty())
      thought = read_sealed_thought(fields.string("encrypted_content").value_or(""));
    if (thought.empty()) thought = joined_text(fields, "summary");
    if (!thought.empty()) turn_["reasoning_content"] = thought;
  }

  const ResponsesTools& tools_;
  const ResponseStore& store_;
  Json messages_ = Json::array();
  Json turn_ = Json::object();  // what the model wrote, so far
};

// `input` is a string or a list of items: messages, calls of functions and their results, thoughts.
Json items_of(const RequestFields& fields, bool may_be_missing) {
  const Json* input = fields.find("input");
  if (input == nullptr && may_be_missing) return Json::array();
  if (input == nullptr) fields.refuse("input", "is missing");
  if (input->is_string())
    return Json::array({{{"type", "message"}, {"role", "user"}, {"content", *input}}});
  if (!input->is_array() || (input->empty() && !may_be_missing))
    throw bad_request("input must be a text or a list of items", "input");
  return *input;
}

// What came before, `instructions` ("": none) before all.
Json read_input(const Json& earlier, const Json& items, const std::string& instructions,
                const ResponsesTools& tools, const ResponseStore& store) {
  InputReader reader(instructions, tools, store);
  for (std::size_t i = 0; i < earlier.size(); ++i)
    reader.read(earlier[i], fmt::format("previous_response_id.items[{}]", i));
  for (std::size_t i = 0; i < items.size(); ++i) reader.read(items[i], fmt::format("input[{}]", i));
  Json messages = reader.finish();
  if (messages.empty()) throw bad_request("input has no message", "input");
  return messages;
}

// ---- the other fields

void read_state(const RequestFields& fields, ResponsesRequest& request) {
  for (const char* name : {"conversation", "prompt"}) {
    if (fields.find(name) != nullptr) {
      fields.refuse(name,
                    "is not supported: go on with previous_response_id, or send the whole "
                    "input");
    }
  }
  request.previous = fields.string("previous_response_id").value_or("");
  request.store = fields.boolean("store").value_or(true);
  request.background = fields.boolean("background").value_or(false);
  if (request.background && !request.store)
    fields.refuse("background", "needs store: the response is asked for later");
}

Json earlier_items(const RequestFields& fields, const std::string& previous,
                   const ResponseStore& store) {
  if (previous.empty()) return Json::array();
  const auto response = store.find(previous);
  if (response && !has_ended(*response)) {
    fields.refuse("previous_response_id",
                  fmt::format("is \"{}\", which is still being written", previous.substr(0, 80)));
  }
  auto items = store.conversation(previous);
  if (!items) {
    throw bad_request(fmt::format("previous_response_id is \"{}\", which is not kept here (any "
                                  "more); send the whole input",
                                  previous.substr(0, 80)),
                      "previous_response_id")
        .with_code("previous_response_not_found");
  }
  return std::move(*items);
}

// Items have ids, by which clients may refer to them.
Json with_ids(Json items) {
  for (Json& item : items) {
    if (!item.is_object()) continue;
    if (item.contains("role") && item.contains("content") && item["content"].is_string()) {
      const char* part = item["role"] == "assistant" ? "output_text" : "input_text";
      item["content"] = Json::array({{{"type", part}, {"text", item["content"]}}});
    }
    if (item.contains("id")) continue;
    const std::string type = item.value("type", Json("message")) == "message" ? "msg_" : "item_";
    item["id"] = type + random_id();
    if (!item.contains("type")) item["type"] = "message";
  }
  return items;
}

// What a response may have besides. What belongs to tools that are not here never occurs.
void read_include(const RequestFields& fields, ResponsesRequest& request) {
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  const Json* include = fields.array("include");
  if (include == nullptr) return;
  static const std::set<std::string> kNeverOccurs{"file_search_call.results",
                                                  "web_search_call.results",
                                                  "web_search_call.action.sources",
                                                  "message.input_image.image_url",
                                                  "computer_call_output.output.image_url",
                                                  "code_interpreter_call.outputs"};
  for (const Json& each : *include) {
    const std::string name = each.is_string() ? each.get<std::string>() : dump_json(each);
    if (name == "reasoning.encrypted_content")
      request.encrypts = true;
    else if (name == "message.output_text.logprobs")
      request.generation.top_logprobs = static_cast<int>(top.value_or(0));
    else if (!kNeverOccurs.contains(name))
      fields.refuse_value("include", name,
                          "reasoning.encrypted_content or message.output_text.logprobs");
  }
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
      allowed = Json::array();
      for (const Json& tool : members.required_array("tools")) {
        if (tool.is_object() && tool.contains("name")) allowed.push_back(tool.at("name"));
      }
    }
  }
  ResponsesTools tools = read_tool_list(fields, allowed);
  request.tools = tools.functions;
  return tools;
}

OutputFormat read_text_format(const RequestFields& fields) {
  OutputFormat output;
  const auto text = fields.inner("text");
  const auto format = text ? text->inner("format") : std::nullopt;
  if (!format) return output;
  const std::string type = format->string("type").value_or("text");
  if (type == "json_object") {
    output.kind = OutputFormat::Kind::JsonObject;
  } else if (type == "json_schema") {
    output.kind = OutputFormat::Kind::JsonSchema;
    output.schema = format->required_object("schema");
  } else if (type != "text") {
    format->refuse_value("type", type, "text, json_object or json_schema");
  }
  return output;
}

Json or_else(const Json* value, Json otherwise = nullptr) {
  return value == nullptr ? std::move(otherwise) : *value;
}

Json echo_of(const RequestFields& fields) {
  Json shown_text = or_else(fields.object("text"), Json::object());
  if (!shown_text.contains("format")) shown_text["format"] = {{"type", "text"}};
  Json shown_reasoning = {{"effort", nullptr}, {"summary", nullptr}};
  if (const auto reasoning = fields.inner("reasoning")) {
    for (const char* name : {"effort", "summary"})
      shown_reasoning[name] = or_else(reasoning->find(name));
  }
  return {{"instructions", or_else(fields.find("instructions"))},
          {"max_output_tokens", or_else(fields.find("max_output_tokens"))},
          {"parallel_tool_calls", fields.boolean("parallel_tool_calls").value_or(true)},
          {"reasoning", std::move(shown_reasoning)},
          {"temperature", or_else(fields.find("temperature"))},
          {"text", std::move(shown_text)},
          {"tool_choice", or_else(fields.find("tool_choice"), "auto")},
          {"tools", or_else(fields.array("tools"), Json::array())},
          {"top_p", or_else(fields.find("top_p"))},
          {"user", or_else(fields.find("user"))},
          {"metadata", or_else(fields.object("metadata"), Json::object())}};
}

}  // namespace

std::string seal_thought(const std::string& thought) {
  return to_base64(std::string(kSealed) + thought);
}

std::string ResponsesTools::shown(const std::string& space, const std::string& name) const {
  if (space.empty() || space == kNoSpace) return name;
  for (const auto& [shown, original] : names) {
    if (original.space == space && original.name == name) return shown;
  }
  return name;
}

ResponsesRequest read_responses_request(const Json& body, const ResponseStore& store) {
  const RequestFields fields(body);
  ResponsesRequest request;
  read_state(fields, request);
  read_include(fields, request);
  request.echo = echo_of(fields);
  request.stream = fields.boolean("stream").value_or(false);
  if (const auto reasoning = fields.inner("reasoning")) {
    request.thought_as_summary = reasoning->string("summary").value_or("") != "" ||
                                 reasoning->string("generate_summary").has_value();
  }
  GenerationRequest& generation = request.generation;
  request.tools = read_choice(fields, generation);
  const Json earlier = earlier_items(fields, request.previous, store);
  Json items = items_of(fields, /*may_be_missing=*/!request.previous.empty());
  generation.messages =
      read_input(earlier, items, fields.string("instructions").value_or(""), request.tools, store);
  if (request.store) request.input_items = with_ids(std::move(items));
  generation.messages_field = "input";
  generation.continues = read_continues(fields);
  generation.stop = read_stop(fields);
  generation.stop_in_thoughts = fields.boolean("stop_in_thoughts").value_or(false);
  generation.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  generation.stream_arguments = request.stream;
  generation.thinking = naming("reasoning", [&] { return read_thinking(body); });
  if (const Json* variables = fields.object("chat_template_kwargs"))
    generation.template_variables = *variables;
  generation.output = read_text_format(fields);
  generation.sampling = read_sampling(fields);
  generation.max_tokens = fields.integer("max_output_tokens", 1).value_or(0);
  return request;
}

}  // namespace moeflux
