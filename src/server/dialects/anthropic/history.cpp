#include "server/dialects/anthropic/history.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "server/dialects/request_fields.h"

namespace moeflux {
namespace {

constexpr std::string_view kBilling = "x-anthropic-billing-header:";

// One object of the request that knows where it is: "messages.0.content.1.".
struct Part : RequestFields {
  Part(const Json& object, std::string place)
      : RequestFields(object, place), prefix(std::move(place)) {}
  std::string prefix;
};

std::string required_string(const RequestFields& fields, std::string_view name) {
  const auto text = fields.string(name);
  if (!text) fields.refuse(name, "is missing");
  return *text;
}

void append(std::string& text, std::string_view more, std::string_view between) {
  if (!text.empty() && !more.empty()) text += between;
  text += more;
}

// Its title, if it has one, and its text.
std::string document_text(const Part& block) {
  const Json* source = block.object("source");
  if (source == nullptr) block.refuse("source", "is missing");
  const Part fields(*source, block.prefix + "source.");
  const std::string type = required_string(fields, "type");
  if (type != "text") {
    fields.refuse("type", fmt::format("is \"{}\", but this server reads documents as text only",
                                      type.substr(0, 80)));
  }
  std::string text = block.string("title").value_or("");
  append(text, required_string(fields, "data"), "\n");
  return text;
}

std::string block_text(const Part& block, const std::string& type) {
  if (type == "text") return required_string(block, "text");
  if (type == "document") return document_text(block);
  if (type == "image")
    block.refuse("type", "is \"image\", but this server reads text only: leave images out");
  block.refuse("type", fmt::format("is \"{}\", which this server does not know here; it reads text",
                                   type.substr(0, 80)));
}

// Calls each(fields, type) for every block of a list; a string counts as one block of text.
template <class Each>
void for_each_block(const Part& holder, std::string_view name, const Json& content, Each each) {
  if (content.is_string()) {
    const Json block = {{"type", "text"}, {"text", content}};
    each(Part(block, holder.prefix + std::string(name) + "."), std::string("text"));
    return;
  }
  if (!content.is_array()) holder.refuse(name, "must be a string or a list of blocks");
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string where = fmt::format("{}.{}", name, i);
    if (!content[i].is_object()) holder.refuse(where, "must be an object");
    const Part block(content[i], holder.prefix + where + ".");
    each(block, required_string(block, "type"));
  }
}

std::string joined_text(const Part& holder, std::string_view name, const Json& content,
                        std::string_view between) {
  std::string text;
  for_each_block(holder, name, content, [&](const Part& block, const std::string& type) {
    append(text, block_text(block, type), between);
  });
  return text;
}

class History {
 public:
  void add_system(std::string_view given) {
    std::string text = without_billing_lines(given);
    if (text.find_first_not_of(" \t\r\n") != std::string::npos) text_of("system", text, "\n\n");
  }

  void add(const Part& message) {
    const std::string role = required_string(message, "role");
    const Json* content = message.find("content");
    if (content == nullptr) message.refuse("content", "is missing");
    if (role == "user") {
      add_user(message, *content);
    } else if (role == "assistant") {
      add_assistant(message, *content);
    } else if (role == "system") {
      add_system(joined_text(message, "content", *content, "\n\n"));
    } else {
      message.refuse("role",
                     fmt::format("is \"{}\", but must be user or assistant", role.substr(0, 80)));
    }
  }

  bool ends_with_assistant() const {
    return !messages_.empty() && messages_.back()["role"] == "assistant";
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
  void add_user(const Part& message, const Json& content) {
    std::string text;
    bool has_text = false;
    for_each_block(message, "content", content, [&](const Part& block, const std::string& type) {
      if (type == "tool_result") return add_result(block);
      append(text, block_text(block, type), "\n");
      has_text = true;
    });
    if (has_text) text_of("user", text, "\n");
  }

  void add_result(const Part& block) {
    const std::string id = required_string(block, "tool_use_id");
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

  void add_assistant(const Part& message, const Json& content) {
    Json& result = last_of("assistant");
    for_each_block(message, "content", content, [&](const Part& block, const std::string& type) {
      if (type == "redacted_thinking") return;
      if (type == "thinking") return add_thought(result, block);
      if (type == "tool_use") return add_call(result, block);
      result["content"].get_ref<std::string&>() += block_text(block, type);
    });
  }

  static void add_thought(Json& result, const Part& block) {
    const std::string thought = required_string(block, "thinking");
    if (thought.empty()) return;  // it was not shown
    if (!result.contains("reasoning_content")) result["reasoning_content"] = "";
    append(result["reasoning_content"].get_ref<std::string&>(), thought, "\n");
  }

  void add_call(Json& result, const Part& block) {
    const std::string id = required_string(block, "id");
    const std::string name = required_string(block, "name");
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

}  // namespace

std::string without_billing_lines(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    if (!text.starts_with(kBilling)) kept += text.substr(0, end);
    text.remove_prefix(end);
  }
  return kept;
}

Json read_anthropic_messages(const Json& body) {
  const Part fields(body, "");
  History history;
  if (const Json* system = fields.find("system")) {
    for_each_block(fields, "system", *system, [&](const Part& block, const std::string& type) {
      history.add_system(block_text(block, type));
    });
  }
  const Json* messages = fields.array("messages");
  if (messages == nullptr || messages->empty())
    fields.refuse("messages", "must be a list of at least one message");
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const std::string where = fmt::format("messages.{}", i);
    if (!(*messages)[i].is_object()) fields.refuse(where, "must be an object");
    history.add(Part((*messages)[i], where + "."));
  }
  if (history.ends_with_assistant())
    fields.refuse("messages", "must end with a user's: an answer cannot be begun for the model");
  return history.take();
}

}  // namespace moeflux
