#include "text/chat.h"

#include <array>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kTryOutSteps = 300'000;
constexpr std::string_view kProbeText = "probe_value";

// ---- the forms a message can have

std::string python_json(const Json& value) {
  static const auto kToJson = jinja::Template::parse("{{ value | tojson }}", "tojson");
  return kToJson.render(Json{{"value", value}}).text;
}

void convert_arguments(Json& call, ChatTemplate::ArgumentForm form) {
  if (!call.is_object()) return;
  const auto function = call.find("function");
  Json& holder = function != call.end() && function->is_object() ? *function : call;
  const auto arguments = holder.find("arguments");
  if (arguments == holder.end()) return;
  if (form == ChatTemplate::ArgumentForm::String) {
    if (arguments->is_object()) *arguments = python_json(*arguments);
    return;
  }
  if (!arguments->is_string()) return;
  const std::string& text = arguments->get_ref<const std::string&>();
  if (text.empty()) {
    *arguments = Json::object();
    return;
  }
  try {
    Json parsed = parse_json(text, "tool call arguments");
    if (parsed.is_object()) *arguments = std::move(parsed);
  } catch (const Error&) {
    // What a model wrote need not be JSON; the template gets it as it is.
  }
}

void convert_arguments_of_all(Json& messages, ChatTemplate::ArgumentForm form) {
  for (Json& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (Json& call : *calls) convert_arguments(call, form);
  }
}

bool is_text_part(const Json& part) {
  const auto type = part.find("type");
  const auto text = part.find("text");
  return type != part.end() && *type == "text" && text != part.end() && text->is_string();
}

// Text parts become one string; content with images or other parts stays as it is.
void join_parts(Json& content) {
  if (!content.is_array()) return;
  std::string joined;
  bool first = true;
  for (const Json& part : content) {
    if (!is_text_part(part)) return;
    if (!first) joined += '\n';
    first = false;
    joined += part["text"].get_ref<const std::string&>();
  }
  content = std::move(joined);
}

void convert_content_of_all(Json& messages, ChatTemplate::ContentForm form) {
  for (Json& message : messages) {
    const auto content = message.find("content");
    if (content == message.end()) continue;
    if (form == ChatTemplate::ContentForm::String) {
      join_parts(*content);
    } else if (form == ChatTemplate::ContentForm::Parts && content->is_string()) {
      *content = Json::array({Json{{"type", "text"}, {"text", *content}}});
    }
  }
}

// ---- trying out

Json probe_message(std::string_view role, Json content) {
  return Json{{"role", role}, {"content", std::move(content)}};
}

Json probe_tools() {
  return Json::parse(
      R"([{"type": "function", "function": {"name": "probe", "description": "Probes.",
      "parameters": {"type": "object", "required": ["probe_key"],
                     "properties": {"probe_key": {"type": "string",
                                                  "description": "A key."}}}}}])");
}

// A conversation with one call; some templates insist on ids of nine letters.
Json probe_call(Json content, Json arguments) {
  Json assistant = probe_message("assistant", std::move(content));
  assistant["tool_calls"] = Json::array(
      {Json{{"id", "call00001"},
            {"type", "function"},
            {"function", Json{{"name", "probe"}, {"arguments", std::move(arguments)}}}}});
  Json result = probe_message("tool", "result");
  result["tool_call_id"] = "call00001";
  result["name"] = "probe";
  return Json::array({probe_message("user", "question"), assistant, result});
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
  content_form_ = find_content_form();
  argument_form_ = find_argument_form();
}

std::string ChatTemplate::try_out(const Json& messages, const Json& tools) const {
  ChatRequest request;
  request.messages = messages;
  request.tools = tools;
  if (content_form_ == ContentForm::Parts) {
    convert_content_of_all(request.messages, ContentForm::Parts);
  }
  jinja::RenderOptions options;
  options.limits.max_steps = kTryOutSteps;
  try {
    return template_.render(variables(request), options).text;
  } catch (const Error&) {
    return {};
  }
}

ChatTemplate::ContentForm ChatTemplate::find_content_form() const {
  const Json text_only = Json::array({probe_message("user", kProbeText)});
  const Json parts = Json::array(
      {probe_message("user", Json::array({Json{{"type", "text"}, {"text", kProbeText}}}))});
  const std::string from_parts = try_out(parts, nullptr);
  const bool reads_text = contains(try_out(text_only, nullptr), kProbeText);
  // A template that does not know parts may print the list itself.
  const bool reads_parts = contains(from_parts, kProbeText) && !contains(from_parts, "'text'") &&
                           !contains(from_parts, "\"text\"");
  if (reads_text == reads_parts) return ContentForm::AsGiven;
  return reads_text ? ContentForm::String : ContentForm::Parts;
}

ChatTemplate::ArgumentForm ChatTemplate::find_argument_form() const {
  const Json object = Json{{"probe_key", kProbeText}};
  // Whether the content of a calling message is null or empty decides in some templates whether its
  // calls are shown at all.
  for (const Json& content : {Json(nullptr), Json("")}) {
    const std::string with_object = try_out(probe_call(content, object), probe_tools());
    const std::string with_string =
        try_out(probe_call(content, python_json(object)), probe_tools());
    if (contains(with_object, "'probe_key': 'probe_value'")) return ArgumentForm::String;
    if (contains(with_object, kProbeText)) return ArgumentForm::Object;
    if (contains(with_string, kProbeText)) return ArgumentForm::String;
  }
  return ArgumentForm::Object;
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
  Json values = variables(request);
  convert_arguments_of_all(values["messages"], argument_form_);
  convert_content_of_all(values["messages"], content_form_);
  try {
    return template_.render(values, options);
  } catch (const Error& error) {
    if (error.code() != Errc::BadInput) throw;
    // Trying out saw one short chat. In this one, a role or a kind of message may need other forms.
    Json retry = variables(request);
    const bool objects = argument_form_ == ArgumentForm::Object;
    convert_arguments_of_all(retry["messages"],
                             objects ? ArgumentForm::String : ArgumentForm::Object);
    convert_content_of_all(retry["messages"], ContentForm::String);
    if (retry == values) throw;
    try {
      return template_.render(retry, options);
    } catch (const Error&) {
      throw error;
    }
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
    const auto content = message.find("content");
    if (content == message.end() || content->is_string() || content->is_null()) continue;
    if (!content->is_array()) {
      fail(Errc::BadInput, "messages[{}]: \"content\" must be a string, an array or null", i);
    }
    for (std::size_t part = 0; part < content->size(); ++part) {
      if (!(*content)[part].is_object()) {
        fail(Errc::BadInput, "messages[{}].content[{}] must be an object", i, part);
      }
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
