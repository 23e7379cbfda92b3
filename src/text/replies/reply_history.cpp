#include "text/replies/reply_history.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace moeflux {
namespace {

// Where something is in a request, for messages: "messages[3].tool_calls[0].function".
std::string at(const std::string& parent, std::string_view list, std::size_t index) {
  return fmt::format("{}{}{}[{}]", parent, parent.empty() ? "" : ".", list, index);
}

// Where clients write what a model has thought, as servers give it to them.
constexpr const char* kThoughtFields[] = {"reasoning_content", "reasoning", "thinking"};

const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string text_field(const Json& object, const char* key, const std::string& where) {
  const Json* value = find(object, key);
  if (value == nullptr) fail(Errc::BadInput, "{}: \"{}\" is missing", where, key);
  if (!value->is_string() || value->get_ref<const std::string&>().empty()) {
    fail(Errc::BadInput, "{}: \"{}\" must be a string that is not empty", where, key);
  }
  return value->get<std::string>();
}

std::string role_of(const Json& message, const std::string& where) {
  std::string role = text_field(message, "role", where);
  if (role == "developer") return "system";
  if (role == "function") return "tool";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
    fail(Errc::BadInput,
         "{}: unknown role \"{}\"; there are system, developer, user, assistant and tool", where,
         role);
  }
  return role;
}

// ---- content

Json text_part(const Json& part, const std::string& where) {
  if (!part.is_object()) fail(Errc::BadInput, "{} must be an object", where);
  const std::string type = text_field(part, "type", where);
  const bool refusal = type == "refusal";
  if (type != "text" && type != "input_text" && type != "output_text" && !refusal) {
    fail(Errc::BadInput, "{}: parts of type \"{}\" are not supported; this server reads text only",
         where, type);
  }
  const char* key = refusal ? "refusal" : "text";
  const Json* text = find(part, key);
  if (text == nullptr || !text->is_string()) {
    fail(Errc::BadInput, "{}: \"{}\" must be a string", where, key);
  }
  return Json{{"type", "text"}, {"text", *text}};
}

Json content_of(const Json& message, const std::string& where, bool may_be_missing = false) {
  const Json* content = find(message, "content");
  if (content == nullptr) {
    if (may_be_missing) return "";
    fail(Errc::BadInput, "{}.content is missing; give a string or an array of text parts", where);
  }
  return normalize_content(*content, where + ".content");
}

std::string text_of(const Json& content) {
  return content.is_string() ? content.get<std::string>() : joined_parts(content);
}

bool is_empty(const Json& content) {
  return content.is_string() && content == "";
}

// ---- calls

// What a model once wrote need not be JSON, and a chat must be able to go on after that.
Json arguments_of(const Json& function, ArgumentForm form, const std::string& where) {
  const Json* arguments = find(function, "arguments");
  if (arguments == nullptr) return Json::object();
  if (arguments->is_object()) return *arguments;
  if (!arguments->is_string()) {
    fail(Errc::BadInput, "{}: \"arguments\" must be a string or an object", where);
  }
  const std::string& text = arguments->get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
  if (form == ArgumentForm::String) return text;
  try {
    Json parsed = parse_json(text, "arguments");
    if (parsed.is_object()) return parsed;
  } catch (const Error&) {
  }
  return Json{{"arguments", text}};
}

Json call_of(const Json& call, ArgumentForm form, const std::string& where) {
  if (!call.is_object()) fail(Errc::BadInput, "{} must be an object", where);
  const Json* type = find(call, "type");
  if (type != nullptr && *type != "function") {
    fail(Errc::BadInput, "{}: calls of type {} are not supported; use \"function\"", where,
         dump_json(*type).substr(0, 80));
  }
  const Json* nested = find(call, "function");
  if (nested != nullptr && !nested->is_object()) {
    fail(Errc::BadInput, "{}: \"function\" must be an object", where);
  }
  const std::string inside = nested != nullptr ? where + ".function" : where;
  const Json& function = nested != nullptr ? *nested : call;
  Json result = Json::object();
  if (const Json* id = find(call, "id")) {
    if (!id->is_string()) fail(Errc::BadInput, "{}: \"id\" must be a string", where);
    result["id"] = *id;
  }
  result["type"] = "function";
  result["function"] = Json{{"name", text_field(function, "name", inside)},
                            {"arguments", arguments_of(function, form, inside)}};
  return result;
}

Json calls_of(const Json& message, ArgumentForm form, const std::string& where) {
  Json result = Json::array();
  if (const Json* calls = find(message, "tool_calls")) {
    if (!calls->is_array()) fail(Errc::BadInput, "{}: \"tool_calls\" must be an array", where);
    for (std::size_t i = 0; i < calls->size(); ++i) {
      result.push_back(call_of((*calls)[i], form, at(where, "tool_calls", i)));
    }
  } else if (const Json* call = find(message, "function_call")) {
    result.push_back(call_of(*call, form, where + ".function_call"));
  }
  return result;
}

// ---- messages

class MessageNormalizer {
 public:
  explicit MessageNormalizer(const ReplyProfile& profile) : profile_(profile) {}

  void add(const Json& message, const std::string& where) {
    if (!message.is_object()) fail(Errc::BadInput, "{} must be an object", where);
    const std::string role = role_of(message, where);
    if (role == "system") {
      add_system(content_of(message, where));
    } else if (role == "user") {
      messages_.push_back(Json{{"role", "user"}, {"content", content_of(message, where)}});
    } else if (role == "assistant") {
      add_assistant(message, where);
    } else {
      add_tool(message, where);
    }
    copy_name(message, where);
  }

  Json take() {
    if (profile_.one_call) split_calls();
    if (profile_.named_ids) name_ids();
    for (Json& message : messages_) profile_.forms.apply(message);
    return std::move(messages_);
  }

 private:
  // Clients write several system messages in a row; most templates read one.
  void add_system(Json content) {
    if (!messages_.empty() && messages_.back()["role"] == "system" && messages_.size() == 1) {
      Json& first = messages_.back()["content"];
      first = text_of(first) + "\n\n" + text_of(content);
      return;
    }
    const bool late = !messages_.empty();
    const char* role = late && !profile_.late_system ? "user" : "system";
    messages_.push_back(Json{{"role", role}, {"content", std::move(content)}});
  }

  void add_assistant(const Json& message, const std::string& where) {
    Json calls = calls_of(message, profile_.forms.arguments, where);
    const auto thought_key =
        std::find_if(std::begin(kThoughtFields), std::end(kThoughtFields),
                     [&](const char* key) { return find(message, key) != nullptr; });
    const bool thinks = thought_key != std::end(kThoughtFields);
    const bool says_something_else =
        !calls.empty() || thinks || find(message, "refusal") != nullptr;
    Json result =
        Json{{"role", "assistant"}, {"content", content_of(message, where, says_something_else)}};
    if (thinks) {
      const Json& thought = message.at(*thought_key);
      if (!thought.is_string())
        fail(Errc::BadInput, "{}: \"{}\" must be a string", where, *thought_key);
      add_thought(thought, !calls.empty(), result);
    }
    if (!calls.empty()) {
      for (const Json& call : calls) {
        if (call.contains("id")) names_[call["id"].get<std::string>()] = call["function"]["name"];
      }
      if (profile_.null_content && is_empty(result["content"])) result["content"] = nullptr;
      result["tool_calls"] = std::move(calls);
    }
    messages_.push_back(std::move(result));
  }

  void add_thought(const Json& thought, bool has_calls, Json& to) const {
    Json& field = to[profile_.thought_field];
    field = thought;
    if (!has_calls || profile_.thought_and_text || is_empty(to["content"]) || is_empty(thought))
      return;
    field = thought.get<std::string>() + "\n\n" + text_of(to["content"]);
    to["content"] = "";
  }

  // The index counts all calls of the chat.
  void name_ids() {
    std::map<std::string, Json> named;
    int n_calls = 0;
    for (Json& message : messages_) {
      if (message.contains("tool_call_id")) {
        const auto id = named.find(message["tool_call_id"].get<std::string>());
        if (id != named.end()) message["tool_call_id"] = id->second;
      }
      if (!message.contains("tool_calls")) continue;
      for (Json& call : message["tool_calls"]) {
        const Json id =
            fmt::format("functions.{}:{}", call["function"]["name"].get<std::string>(), n_calls++);
        if (call.contains("id")) named[call["id"].get<std::string>()] = id;
        call["id"] = id;
      }
    }
  }

  // Messages of one call each, every one followed by its results.
  void split_calls() {
    Json split = Json::array();
    for (std::size_t i = 0; i < messages_.size();) {
      Json message = std::move(messages_[i++]);
      if (!message.contains("tool_calls") || message["tool_calls"].size() < 2) {
        split.push_back(std::move(message));
        continue;
      }
      std::vector<Json> results;
      while (i < messages_.size() && messages_[i]["role"] == "tool")
        results.push_back(std::move(messages_[i++]));
      const Json calls = std::exchange(message["tool_calls"], Json::array());
      for (std::size_t c = 0; c < calls.size(); ++c) {
        message["tool_calls"] = Json::array({calls[c]});
        split.push_back(message);
        message =
            Json{{"role", "assistant"}, {"content", profile_.null_content ? Json() : Json("")}};
        take_results(calls[c], c + 1 == calls.size(), results, split);
      }
    }
    messages_ = std::move(split);
  }

  // Moves the results of a call, or all that are left; one without an id is the next call's.
  static void take_results(const Json& call, bool is_last, std::vector<Json>& from, Json& to) {
    bool may_take_unnamed = true;
    for (auto result = from.begin(); result != from.end();) {
      const bool unnamed = !result->contains("tool_call_id") || !call.contains("id");
      const bool fits = unnamed ? std::exchange(may_take_unnamed, false)
                                : (*result)["tool_call_id"] == call["id"];
      if (!fits && !is_last) {
        ++result;
        continue;
      }
      to.push_back(std::move(*result));
      result = from.erase(result);
    }
  }

  void add_tool(const Json& message, const std::string& where) {
    const bool is_of_old = message.at("role") == "function";  // whose result may be null
    Json result = Json{{"role", "tool"}, {"content", content_of(message, where, is_of_old)}};
    if (const Json* id = find(message, "tool_call_id")) {
      if (!id->is_string()) fail(Errc::BadInput, "{}: \"tool_call_id\" must be a string", where);
      result["tool_call_id"] = *id;
      const auto name = names_.find(id->get<std::string>());
      if (name != names_.end()) result["name"] = name->second;
    }
    messages_.push_back(std::move(result));
  }

  void copy_name(const Json& message, const std::string& where) {
    const Json* name = find(message, "name");
    if (name == nullptr) return;
    if (!name->is_string()) fail(Errc::BadInput, "{}: \"name\" must be a string", where);
    if (!messages_.back().contains("name")) messages_.back()["name"] = *name;
  }

  const ReplyProfile& profile_;
  Json messages_ = Json::array();
  std::map<std::string, std::string> names_;  // of calls, by id
};

}  // namespace

Json normalize_messages(const Json& messages, const ReplyProfile& profile) {
  if (!messages.is_array()) fail(Errc::BadInput, "\"messages\" must be an array");
  if (messages.empty()) fail(Errc::BadInput, "\"messages\" is empty");
  MessageNormalizer normalizer(profile);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    normalizer.add(messages[i], at("", "messages", i));
  }
  return normalizer.take();
}

Json normalize_content(const Json& content, const std::string& where) {
  if (content.is_string()) return content;
  if (!content.is_array()) {
    fail(Errc::BadInput, "{} must be a string or an array of text parts", where);
  }
  Json parts = Json::array();
  for (std::size_t i = 0; i < content.size(); ++i) {
    parts.push_back(text_part(content[i], fmt::format("{}[{}]", where, i)));
  }
  return parts.empty() ? Json("") : parts;
}

Json normalize_tools(const Json& tools) {
  if (tools.is_null()) return nullptr;
  if (!tools.is_array()) fail(Errc::BadInput, "\"tools\" must be an array");
  Json result = Json::array();
  std::map<std::string, std::size_t> seen;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string where = at("", "tools", i);
    const Json& tool = tools[i];
    if (!tool.is_object()) fail(Errc::BadInput, "{} must be an object", where);
    const Json* type = find(tool, "type");
    if (type != nullptr && *type != "function") {
      fail(Errc::BadInput, "{}: tools of type {} are not supported; use \"function\"", where,
           dump_json(*type).substr(0, 80));
    }
    const Json* nested = find(tool, "function");
    if (nested != nullptr && !nested->is_object()) {
      fail(Errc::BadInput, "{}: \"function\" must be an object", where);
    }
    Json function = nested != nullptr ? *nested : tool;
    if (nested == nullptr) function.erase("type");
    const std::string inside = nested != nullptr ? where + ".function" : where;
    const std::string name = text_field(function, "name", inside);
    const Json* parameters = find(function, "parameters");
    if (parameters != nullptr && !parameters->is_object()) {
      fail(Errc::BadInput, "{}: \"parameters\" must be a JSON schema, an object", inside);
    }
    const auto [first, fresh] = seen.emplace(name, i);
    if (!fresh) {
      fail(Errc::BadInput, "{}: there is a tool \"{}\" already, tools[{}]", where, name,
           first->second);
    }
    result.push_back(Json{{"type", "function"}, {"function", std::move(function)}});
  }
  return result.empty() ? Json(nullptr) : result;
}

Json tools_for_template(Json tools, const ReplyProfile& profile) {
  if (!profile.needs_descriptions || !tools.is_array()) return tools;
  for (Json& tool : tools) {
    Json& function = tool.at("function");
    if (find(function, "description") == nullptr) function["description"] = "";
  }
  return tools;
}

}  // namespace moeflux
