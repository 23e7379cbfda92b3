#include "text/chat/chat.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kProbeSteps = 300'000;
constexpr std::string_view kProbeText = "probe_value";

std::string python_json(const Json& value) {
  static const auto kToJson = jinja::Template::parse("{{ value | tojson }}", "tojson");
  return kToJson.render(Json{{"value", value}}).text;
}

Json text_parts(Json text) {
  return Json::array({Json{{"type", "text"}, {"text", std::move(text)}}});
}

// A conversation in which a message of the role says `content`.
Json probe_chat(std::string_view role, const Json& content) {
  const Json question = probe_message("user", kProbeQuestion);
  const Json probe = probe_message(role, content);
  if (role == "system") return Json::array({probe, question});
  if (role == "assistant") return Json::array({question, probe, question});
  if (role == "tool") return probe_call("", Json{{"place", "there"}, {"count", 3}}, content);
  return Json::array({probe});
}

bool contains(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

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
  for (const char* role : {"user", "system", "assistant"}) find_content_form(role);
  forms_.arguments = find_argument_form();
  find_content_form("tool");
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

// ---- probing

std::optional<MarkedText> ChatTemplate::probe(ChatRequest request) const {
  for (Json& message : request.messages) forms_.apply(message);
  jinja::RenderOptions options;
  options.limits.max_steps = kProbeSteps;
  try {
    return render(request, options);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void ChatTemplate::find_content_form(const char* role) {
  const auto shown = [&](const Json& content) {
    ChatRequest request{.messages = probe_chat(role, content)};
    if (std::string_view(role) == "tool") request.tools = probe_tools();
    const std::optional<MarkedText> rendered = probe(std::move(request));
    return rendered ? rendered->text : std::string();
  };
  const bool reads_text = contains(shown(kProbeText), kProbeText);
  const std::string from_parts = shown(text_parts(kProbeText));
  // A template that does not know parts may print the list itself.
  constexpr std::array kPrinted = {R"('text': 'probe)", R"("text": "probe)", R"("text":"probe)"};
  const bool reads_parts =
      contains(from_parts, kProbeText) &&
      std::none_of(kPrinted.begin(), kPrinted.end(),
                   [&](std::string_view printed) { return contains(from_parts, printed); });
  if (reads_text == reads_parts) return;
  forms_.content[role] = reads_text ? ContentForm::String : ContentForm::Parts;
}

ArgumentForm ChatTemplate::find_argument_form() const {
  const Json object = Json{{"place", kProbeText}, {"count", 3}};
  // Whether the content of a calling message is null or empty decides in some templates whether its
  // calls are shown at all.
  for (const Json& content : {Json(nullptr), Json("")}) {
    const auto shown = [&](Json arguments) {
      const std::optional<MarkedText> rendered =
          probe({.messages = probe_call(content, std::move(arguments), "result"),
                 .tools = probe_tools()});
      return rendered ? rendered->text : std::string();
    };
    const std::string from_object = shown(object);
    if (contains(from_object, "'place': 'probe_value'")) return ArgumentForm::String;
    if (contains(from_object, kProbeText)) return ArgumentForm::Object;
    if (contains(shown(python_json(object)), kProbeText)) return ArgumentForm::String;
  }
  return ArgumentForm::Object;
}

Json probe_message(std::string_view role, Json content) {
  return Json{{"role", role}, {"content", std::move(content)}};
}

Json probe_tools() {
  return Json::parse(R"([{"type": "function", "function": {"name": "probe_tool",
      "description": "Probes.", "parameters": {"type": "object", "required": ["place", "count"],
      "properties": {"place": {"type": "string", "description": "A place."},
                     "count": {"type": "integer", "description": "A number."}}}}}])");
}

// Some templates insist on ids of nine letters.
Json probe_call(Json content, Json arguments, Json result_content) {
  Json assistant = probe_message("assistant", std::move(content));
  assistant["tool_calls"] = Json::array(
      {Json{{"id", "call00001"},
            {"type", "function"},
            {"function", Json{{"name", "probe_tool"}, {"arguments", std::move(arguments)}}}}});
  Json result = probe_message("tool", std::move(result_content));
  result["tool_call_id"] = "call00001";
  result["name"] = "probe_tool";
  return Json::array({probe_message("user", kProbeQuestion), assistant, result});
}

// ---- messages

std::string joined_parts(const Json& parts) {
  std::string joined;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) joined += '\n';
    joined += parts[i].at("text").get_ref<const std::string&>();
  }
  return joined;
}

void MessageForms::apply(Json& message) const {
  const auto form = content.find(message.at("role").get_ref<const std::string&>());
  if (form != content.end()) {
    Json& value = message.at("content");
    if (form->second == ContentForm::String && value.is_array()) value = joined_parts(value);
    if (form->second == ContentForm::Parts && value.is_string()) value = text_parts(value);
  }
  if (arguments == ArgumentForm::Object || !message.contains("tool_calls")) return;
  for (Json& call : message["tool_calls"]) {
    Json& given = call.at("function").at("arguments");
    if (given.is_object()) given = python_json(given);
  }
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
