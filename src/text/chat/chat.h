// From the messages of a chat request to the marked text of a prompt, by the model's own template.
//
// Messages reach the template exactly as they are given, as with Hugging Face transformers: content
// stays a string or a list of parts, arguments of calls stay a string or an object. Whoever has
// messages of API clients brings them into the template's forms() first (normalize_messages()).
// Immutable after construction: any thread may render.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/chat/marked_text.h"
#include "text/chat/message_forms.h"
#include "text/jinja/template.h"

namespace moeflux {

struct ChatRequest {
  Json messages;             // array of objects, see validate_messages()
  Json tools = nullptr;      // array, or null
  Json documents = nullptr;  // array, or null
  bool add_generation_prompt = true;
  Json extra = Json::object();  // more variables of the template, such as enable_thinking
};

class ChatTemplate {
 public:
  // `special_tokens` maps names such as "bos_token" to their text; they become variables. Throws
  // what parsing the template throws; `name` is its name in errors.
  ChatTemplate(std::string_view source, std::string name,
               std::map<std::string, std::string> special_tokens);

  // Throws BadInput when the messages are malformed or the template refuses them.
  MarkedText render(const ChatRequest& request, const jinja::RenderOptions& options = {}) const;

  const MessageForms& forms() const { return forms_; }

 private:
  Json variables(const ChatRequest& request) const;

  jinja::Template template_;
  std::map<std::string, std::string> special_tokens_;
  MessageForms forms_;
};

// Throws BadInput unless `messages` is an array of objects with a string "role". All else is
// between them and the template.
void validate_messages(const Json& messages);

// The template to use out of "chat_template" in a tokenizer_config.json: a string, or a list of
// {"name", "template"} of which "tool_use" serves requests with tools and "default" all others.
std::string select_chat_template(const Json& chat_template, bool has_tools);

}  // namespace moeflux
