#include "text/chat/message_forms.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/chat/chat.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kTryOutSteps = 300'000;
constexpr std::string_view kProbeText = "probe_value";

std::string python_json(const Json& value) {
  static const auto kToJson = jinja::Template::parse("{{ value | tojson }}", "tojson");
  return kToJson.render(Json{{"value", value}}).text;
}

Json text_parts(Json text) {
  return Json::array({Json{{"type", "text"}, {"text", std::move(text)}}});
}

// ---- trying out

Json probe_message(std::string_view role, Json content) {
  return Json{{"role", role}, {"content", std::move(content)}};
}

Json example_tools() {
  return Json::parse(
      R"([{"type": "function", "function": {"name": "probe", "description": "Probes.",
      "parameters": {"type": "object", "required": ["probe_key"],
                     "properties": {"probe_key": {"type": "string",
                                                  "description": "A key."}}}}}])");
}

// A conversation with one call; some templates insist on ids of nine letters.
Json probe_call(Json content, Json arguments, Json result_content) {
  Json assistant = probe_message("assistant", std::move(content));
  assistant["tool_calls"] = Json::array(
      {Json{{"id", "call00001"},
            {"type", "function"},
            {"function", Json{{"name", "probe"}, {"arguments", std::move(arguments)}}}}});
  Json result = probe_message("tool", std::move(result_content));
  result["tool_call_id"] = "call00001";
  result["name"] = "probe";
  return Json::array({probe_message("user", "question"), assistant, result});
}

// A conversation in which a message of the role says `content`.
Json probe_chat(std::string_view role, const Json& content) {
  const Json question = probe_message("user", "question");
  const Json probe = probe_message(role, content);
  if (role == "system") return Json::array({probe, question});
  if (role == "assistant") return Json::array({question, probe, question});
  if (role == "tool") return probe_call("", Json{{"probe_key", "key"}}, content);
  return Json::array({probe});
}

bool contains(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

class FormFinder {
 public:
  explicit FormFinder(const ChatTemplate& chat) : chat_(chat) {}

  MessageForms find() {
    for (const char* role : {"user", "system", "assistant"}) find_content_form(role);
    forms_.arguments = find_argument_form();
    find_content_form("tool");
    return std::move(forms_);
  }

 private:
  // Empty when the template refuses.
  std::string try_out(Json messages, Json tools) const {
    for (Json& message : messages) forms_.apply(message);
    ChatRequest request;
    request.messages = std::move(messages);
    request.tools = std::move(tools);
    jinja::RenderOptions options;
    options.limits.max_steps = kTryOutSteps;
    try {
      return chat_.render(request, options).text;
    } catch (const Error&) {
      return {};
    }
  }

  void find_content_form(const char* role) {
    const Json tools = std::string_view(role) == "tool" ? example_tools() : Json(nullptr);
    const std::string from_text = try_out(probe_chat(role, kProbeText), tools);
    const std::string from_parts = try_out(probe_chat(role, text_parts(kProbeText)), tools);
    const bool reads_text = contains(from_text, kProbeText);
    // A template that does not know parts may print the list itself.
    constexpr std::array kPrinted = {R"('text': 'probe)", R"("text": "probe)", R"("text":"probe)"};
    const bool reads_parts =
        contains(from_parts, kProbeText) &&
        std::none_of(kPrinted.begin(), kPrinted.end(),
                     [&](std::string_view printed) { return contains(from_parts, printed); });
    if (reads_text == reads_parts) return;
    forms_.content[role] = reads_text ? ContentForm::String : ContentForm::Parts;
  }

  ArgumentForm find_argument_form() const {
    const Json object = Json{{"probe_key", kProbeText}};
    // Whether the content of a calling message is null or empty decides in some templates whether
    // its calls are shown at all.
    for (const Json& content : {Json(nullptr), Json("")}) {
      const auto shown = [&](Json arguments) {
        return try_out(probe_call(content, std::move(arguments), "result"), example_tools());
      };
      const std::string from_object = shown(object);
      if (contains(from_object, "'probe_key': 'probe_value'")) return ArgumentForm::String;
      if (contains(from_object, kProbeText)) return ArgumentForm::Object;
      if (contains(shown(python_json(object)), kProbeText)) return ArgumentForm::String;
    }
    return ArgumentForm::Object;
  }

  const ChatTemplate& chat_;
  MessageForms forms_;
};

}  // namespace

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

MessageForms find_message_forms(const ChatTemplate& chat) {
  return FormFinder(chat).find();
}

}  // namespace moeflux
