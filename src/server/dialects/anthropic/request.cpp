#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "server/dialects/anthropic/anthropic.h"
#include "server/dialects/request_fields.h"

namespace moeflux {
namespace {

// ---- the system prompt and the messages, in the form that text/replies/reply_history.h reads
//
// Results of tools become messages of their own, thoughts become reasoning_content, neighbours of
// one role become one message. Text that changes from request to request without meaning anything
// to a model is left out, so that the prefix of a conversation stays the same for the prefix store.

void append(std::string& text, std::string_view more, std::string_view between) {
  if (!text.empty() && !more.empty()) text += between;
  text += more;
}

// Its title, if it has one, and its text.
std::string document_text(const RequestFields& block) {
  const RequestFields fields(block.required_object("source"), block.prefix() + "source.");
  const std::string type = fields.required_string("type");
  if (type != "text") {
    fields.refuse("type", fmt::format("is \"{}\", but this server reads documents as text only",
                                      type.substr(0, 80)));
  }
  std::string text = block.string("title").value_or("");
  append(text, fields.required_string("data"), "\n");
  return text;
}

std::string block_text(const RequestFields& block, const std::string& type) {
  if (type == "text") return block.required_string("text");
  if (type == "document") return document_text(block);
  if (type == "image")
    block.refuse("type", "is \"image\", but this server reads text only: leave images out");
  block.refuse("type", fmt::format("is \"{}\", which this server does not know here; it reads text",
                                   type.substr(0, 80)));
}

// Calls each(fields) for every object of a list.
template <class Each>
void for_each_object(const RequestFields& holder, std::string_view name, const Json& list,
                     Each each) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}.{}", name, i);
    if (!list[i].is_object()) holder.refuse(where, "must be an object");
    each(RequestFields(list[i], holder.prefix() + where + "."));
  }
}

// Calls each(fields, type) for every block of a list; a string counts as one block of text.
template <class Each>
void for_each_block(const RequestFields& holder, std::string_view name, const Json& content,
                    Each each) {
  if (content.is_string()) {
    const Json block = {{"type", "text"}, {"text", content}};
    each(RequestFields(block, holder.prefix() + std::string(name) + "."), std::string("text"));
    return;
  }
  if (!content.is_array()) holder.refuse(name, "must be a string or a list of blocks");
  for_each_object(holder, name, content,
                  [&](const RequestFields& block) { each(block, block.required_string("type")); });
}

std::string joined_text(const RequestFields& holder, std::string_view name, const Json& content,
                        std::string_view between) {
  std::string text;
  for_each_block(holder, name, content, [&](const RequestFields& block, const std::string& type) {
    append(text, block_text(block, type), between);
  });
  return text;
}

// Agents put a line about their billing first, whose checksum differs in every request.
std::string without_billing(std::string_view text) {
  constexpr std::string_view kBilling = "x-anthropic-billing-header:";
  std::string kept;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    if (!text.starts_with(kBilling)) kept += text.substr(0, end);
    text.remove_prefix(end);
  }
  return kept;
}

class History {
 public:
  void add_system(std::string_view given) {
    std::string text = without_billing(given);
    if (text.find_first_not_of(" \t\r\n") != std::string::npos) text_of("system", text, "\n\n");
  }

  void add(const RequestFields& message) {
    const std::string role = message.required_string("role");
    const Json* content = message.find("content");
    if (content == nullptr) message.refuse("content", "is missing");
    if (role == "user") {
      add_user(message, *content);
    } else if (role == "assistant") {
      add_assistant(message, *content);
    } else if (role == "system") {
      add_system(joined_text(message, "content", *content, "\n\n"));
    } else {
      message.refuse_value("role", role, "user or assistant");
    }
  }

  Json take() { return std::move(messages_); }

 private:
  Json& last_of(const char* role) {
    if (messages_.empty() || messages_.back()["role"] != role)
      messages_.push_back({{"role", role}, {"content", ""}});
    return messages_.back();
  }
  void text_of(const char* role, std::string_view text, std::string_view between) {
    append(last_of(role)["content"].get_ref<std::string&>(), text, between);
  }

  // Results answer the calls of the message before, wherever they stand in this one.
  void add_user(const RequestFields& message, const Json& content) {
    std::string text;
    bool has_text = false;
    for_each_block(message, "content", content,
                   [&](const RequestFields& block, const std::string& type) {
                     if (type == "tool_result") return add_result(block);
                     append(text, block_text(block, type), "\n");
                     has_text = true;
                   });
    if (has_text) text_of("user", text, "\n");
  }

  void add_result(const RequestFields& block) {
    const std::string id = block.required_string("tool_use_id");
    if (!calls_.contains(id)) {
      block.refuse("tool_use_id", fmt::format("is \"{}\", but no tool_use before it has this id",
                                              id.substr(0, 80)));
    }
    std::string text;
    if (const Json* content = block.find("content"))
      text = joined_text(block, "content", *content, "\n");
    if (block.boolean("is_error").value_or(false)) text = "Error: " + text;
    messages_.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", text}});
  }

  void add_assistant(const RequestFields& message, const Json& content) {
    Json& result = last_of("assistant");
    for_each_block(message, "content", content,
                   [&](const RequestFields& block, const std::string& type) {
                     if (type == "redacted_thinking") return;
                     if (type == "thinking") return add_thought(result, block);
                     if (type == "tool_use") return add_call(result, block);
                     result["content"].get_ref<std::string&>() += block_text(block, type);
                   });
  }

  static void add_thought(Json& result, const RequestFields& block) {
    const std::string thought = block.required_string("thinking");
    if (thought.empty()) return;  // it was not shown
    if (!result.contains("reasoning_content")) result["reasoning_content"] = "";
    append(result["reasoning_content"].get_ref<std::string&>(), thought, "\n");
  }

  void add_call(Json& result, const RequestFields& block) {
    const std::string id = block.required_string("id");
    const std::string name = block.required_string("name");
    if (name.empty()) block.refuse("name", "is empty");
    const Json* input = block.object("input");
    if (!calls_.insert(id).second)
      block.refuse("id", fmt::format("is \"{}\", which an earlier tool_use has", id.substr(0, 80)));
    result["tool_calls"].push_back(
        {{"id", id},
         {"type", "function"},
         {"function",
          {{"name", name}, {"arguments", input == nullptr ? Json::object() : *input}}}});
  }

  Json messages_ = Json::array();
  std::set<std::string> calls_;  // ids
};

Json read_messages(const Json& body) {
  const RequestFields fields(body, "");
  History history;
  if (const Json* system = fields.find("system")) {
    for_each_block(fields, "system", *system,
                   [&](const RequestFields& block, const std::string& type) {
                     history.add_system(block_text(block, type));
                   });
  }
  const Json* messages = fields.array("messages");
  if (messages == nullptr || messages->empty())
    fields.refuse("messages", "must be a list of at least one message");
  for_each_object(fields, "messages", *messages,
                  [&](const RequestFields& message) { history.add(message); });
  return history.take();
}

// ---- the other fields

// A conversation that the server keeps, so that a request has only what is new. Tool runners of
// the official clients try it first; by this code they know to send everything.
void refuse_thread(const RequestFields& fields) {
  if (fields.find("thread") == nullptr) return;
  throw bad_request(
      "thread is not supported: this server keeps no conversations; send all messages without it",
      "thread")
      .with_code("thread_unsupported_request");
}

// One tool in OpenAI's form; null for one without a schema, which only Anthropic's models know.
Json read_tool(const RequestFields& tool) {
  if (tool.string("type").value_or("custom") != "custom") return nullptr;
  const auto name = tool.string("name");
  if (!name || name->empty()) tool.refuse("name", "must be a string that is not empty");
  const Json& schema = tool.required_object("input_schema");
  Json function = {{"name", *name}};
  if (const auto description = tool.string("description")) function["description"] = *description;
  function["parameters"] = schema;
  return {{"type", "function"}, {"function", std::move(function)}};
}

Json read_tools(const RequestFields& fields) {
  const Json* tools = fields.array("tools");
  if (tools == nullptr) return nullptr;
  Json known = Json::array();
  for_each_object(fields, "tools", *tools, [&](const RequestFields& given) {
    Json tool = read_tool(given);
    if (!tool.is_null()) known.push_back(std::move(tool));
  });
  return known;
}

void read_tool_choice(const RequestFields& fields, GenerationRequest& request) {
  const auto choice = fields.inner("tool_choice");
  if (!choice) return;
  const std::string type = choice->required_string("type");
  if (type == "tool") {
    request.tool_choice = {{"type", "tool"}, {"name", choice->required_string("name")}};
  } else if (type == "auto" || type == "any" || type == "none") {
    request.tool_choice = type;
  } else {
    choice->refuse_value("type", type, "auto, any, tool or none");
  }
  request.parallel_tool_calls = !choice->boolean("disable_parallel_tool_use").value_or(false);
}

// How hard to think. Whether to think at all is said by another field.
ThinkingChoice read_effort(const RequestFields& fields) {
  const auto config = fields.inner("output_config");
  const auto effort = config ? config->string("effort") : std::nullopt;
  if (!effort) return {};
  return naming("output_config.effort", [&] { return thinking_of_effort(*effort); });
}

// Without a word about it there is no thinking, unlike in other dialects.
ThinkingChoice read_thinking(const RequestFields& fields) {
  ThinkingChoice choice = read_effort(fields);
  const auto thinking = fields.inner("thinking");
  const std::string type = thinking ? thinking->required_string("type") : "disabled";
  if (type == "disabled") return {.enabled = false, .effort = {}, .budget = {}};
  if (type != "enabled" && type != "adaptive")
    thinking->refuse_value("type", type, "enabled, disabled or adaptive");
  choice.enabled = true;
  if (const auto budget = thinking->integer("budget_tokens", 1)) choice.budget = *budget;
  return choice;
}

bool read_shows_thoughts(const RequestFields& fields) {
  const auto thinking = fields.inner("thinking");
  if (!thinking) return true;
  const std::string display = thinking->string("display").value_or("summarized");
  if (display != "summarized" && display != "omitted")
    thinking->refuse_value("display", display, "summarized or omitted");
  return display != "omitted";
}

// output_config.format, or output_format as it was called first.
OutputFormat read_output(const RequestFields& fields) {
  auto format = fields.inner("output_format");
  const auto config = fields.inner("output_config");
  if (config && config->object("format") != nullptr) format.emplace(*config->inner("format"));
  if (!format) return {};
  const std::string type = format->required_string("type");
  if (type != "json_schema") format->refuse_value("type", type, "json_schema");
  return {.kind = OutputFormat::Kind::JsonSchema, .schema = format->required_object("schema")};
}

}  // namespace

GenerationRequest read_anthropic_prompt(const Json& body) {
  const RequestFields fields(body);
  GenerationRequest request;
  refuse_thread(fields);
  request.messages = read_messages(body);
  request.continues = read_continues(fields);
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
  generation.stop_in_thoughts = fields.boolean("stop_in_thoughts").value_or(false);
  generation.output = read_output(fields);
  request.shows_thoughts = read_shows_thoughts(fields);
  request.stream = fields.boolean("stream").value_or(false);
  generation.stream_arguments = request.stream;
  return request;
}

}  // namespace moeflux
