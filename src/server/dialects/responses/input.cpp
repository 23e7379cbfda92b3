#include "server/dialects/responses/input.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "server/dialects/request_fields.h"
#include "server/http/http.h"
#include "text/replies/reply_history.h"

namespace moeflux {
namespace {

class InputReader {
 public:
  InputReader(const std::string& instructions, const ResponsesTools& tools) : tools_(tools) {
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
      fields.refuse("type", "is item_reference, but this server keeps no items: send them whole");
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

  static Json read_content(const RequestFields& fields, const char* name,
                           const std::string& where) {
    const Json* content = fields.find(name);
    if (content == nullptr) fields.refuse(name, "is missing");
    const std::string place = fmt::format("{}.{}", where, name);
    return naming(place, [&] { return normalize_content(*content, place); });
  }

  void read_message(const RequestFields& fields, const std::string& where) {
    const auto role = fields.string("role");
    if (!role) fields.refuse("role", "is missing");
    const std::array<std::string_view, 4> roles = {"user", "assistant", "system", "developer"};
    if (std::find(roles.begin(), roles.end(), *role) == roles.end()) {
      fields.refuse("role",
                    fmt::format("is \"{}\", but must be user, assistant, system or developer",
                                role->substr(0, 80)));
    }
    Json content = read_content(fields, "content", where);
    if (*role != "assistant") return add({{"role", *role}, {"content", std::move(content)}});
    if (turn_.contains("content") || turn_.contains("tool_calls")) end_turn();
    turn_["content"] = std::move(content);
  }

  void read_call(const RequestFields& fields) {
    const auto name = fields.string("name");
    const auto id = fields.string("call_id");
    if (!name || name->empty()) fields.refuse("name", "is missing");
    if (!id) fields.refuse("call_id", "is missing");
    const std::string shown = tools_.shown(fields.string("namespace").value_or(""), *name);
    turn_["tool_calls"].push_back(
        {{"id", *id},
         {"type", "function"},
         {"function", {{"name", shown}, {"arguments", fields.string("arguments").value_or("")}}}});
  }

  void read_output(const RequestFields& fields, const std::string& where) {
    const auto id = fields.string("call_id");
    if (!id) fields.refuse("call_id", "is missing");
    add({{"role", "tool"},
         {"tool_call_id", *id},
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

  // The thought itself where it is given, else its summary. What is encrypted was not by us.
  void read_reasoning(const RequestFields& fields) {
    if (turn_.contains("content") || turn_.contains("tool_calls")) end_turn();
    std::string thought = joined_text(fields, "content");
    if (thought.empty()) thought = joined_text(fields, "summary");
    if (!thought.empty()) turn_["reasoning_content"] = thought;
  }

  const ResponsesTools& tools_;
  Json messages_ = Json::array();
  Json turn_ = Json::object();  // what the model wrote, so far
};

}  // namespace

Json read_responses_input(const Json& input, const std::string& instructions,
                          const ResponsesTools& tools) {
  InputReader reader(instructions, tools);
  if (input.is_string()) {
    reader.read({{"role", "user"}, {"content", input}}, "input");
  } else if (input.is_array() && !input.empty()) {
    for (std::size_t i = 0; i < input.size(); ++i)
      reader.read(input[i], fmt::format("input[{}]", i));
  } else {
    throw bad_request("input must be a text or a list of items", "input");
  }
  Json messages = reader.finish();
  if (messages.empty()) throw bad_request("input has no message", "input");
  return messages;
}

}  // namespace moeflux
