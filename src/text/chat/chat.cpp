#include "text/chat/chat.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace moeflux {
namespace {

bool is_reserved(const std::string& name) {
  static constexpr std::array<std::string_view, 4> kReserved = {"messages", "tools", "documents",
                                                                "add_generation_prompt"};
  return std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end();
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::string name,
                           std::map<std::string, std::string> special_tokens)
    : template_(jinja::Template::parse(source, std::move(name))),
      special_tokens_(std::move(special_tokens)) {
  forms_ = find_message_forms(*this);
}

Json ChatTemplate::variables(const ChatRequest& request) const {
  Json result = Json::object();
  result["messages"] = request.messages;
  result["tools"] = request.tools;
  result["documents"] = request.documents;
  result["add_generation_prompt"] = request.add_generation_prompt;
  for (const auto& [name, text] : special_tokens_) result[name] = text;
  for (const auto& [name, value] : request.extra.items()) {
    // A special token is markup: a request must not be able to bring its own.
    if (is_reserved(name) || name.ends_with("_token")) {
      fail(Errc::BadInput, "the template variable \"{}\" cannot be set by a request", name);
    }
    result[name] = value;
  }
  return result;
}

MarkedText ChatTemplate::render(const ChatRequest& request,
                                const jinja::RenderOptions& options) const {
  validate_messages(request.messages);
  for (const auto* list : {&request.tools, &request.documents}) {
    if (!list->is_null() && !list->is_array()) {
      fail(Errc::BadInput, "\"{}\" must be an array or null",
           list == &request.tools ? "tools" : "documents");
    }
  }
  if (!request.extra.is_object()) {
    fail(Errc::BadInput, "the additional variables of a template must be a JSON object");
  }
  return template_.render(variables(request), options);
}

void validate_messages(const Json& messages) {
  if (!messages.is_array()) fail(Errc::BadInput, "\"messages\" must be an array");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (!message.is_object()) fail(Errc::BadInput, "messages[{}] must be an object", i);
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) {
      fail(Errc::BadInput, "messages[{}] must have a \"role\" that is a string", i);
    }
  }
}

std::string select_chat_template(const Json& chat_template, bool has_tools) {
  if (chat_template.is_string()) return chat_template.get<std::string>();
  std::map<std::string, std::string> by_name;
  if (chat_template.is_array()) {
    for (const Json& entry : chat_template) {
      const bool usable = entry.is_object() && entry.contains("name") &&
                          entry["name"].is_string() && entry.contains("template") &&
                          entry["template"].is_string();
      if (!usable) {
        fail(Errc::BadInput, "chat_template: each entry needs a \"name\" and a \"template\"");
      }
      by_name[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
    }
  } else {
    fail(Errc::BadInput, "chat_template must be a string or a list of named templates");
  }
  if (has_tools && by_name.contains("tool_use")) return by_name["tool_use"];
  if (by_name.contains("default")) return by_name["default"];
  if (by_name.size() == 1) return by_name.begin()->second;
  fail(Errc::NotFound, "chat_template: none of the {} templates is named \"default\"",
       by_name.size());
}

}  // namespace moeflux
