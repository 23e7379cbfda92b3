// From the messages of a chat request to the marked text of a prompt, by the model's own template.
//
// Messages reach the template exactly as they are given, as with Hugging Face transformers: content
// stays a string or a list of parts, arguments of calls stay a string or an object. Whoever has
// messages of API clients brings them into the template's forms() first (normalize_messages()).
// Immutable after construction: any thread may render.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/chat/marked_text.h"
#include "text/jinja/template.h"

namespace moeflux {

// Clients write content as text or as parts, and arguments of calls as text or as an object;
// templates are written for one form or for several. Each template is probed once to learn which it
// reads. A template's own render() converts nothing: see docs/REPLIES.md for who does.

// What the content of a message has to be.
enum class ContentForm {
  AsGiven,  // both are read
  String,
  Parts,
};
// What the arguments of a call have to be.
enum class ArgumentForm { Object, String };

struct MessageForms {
  std::map<std::string, ContentForm, std::less<>> content = {};  // by role; else as given
  ArgumentForm arguments = ArgumentForm::Object;

  // Brings a message with parts of text only, and arguments that are objects, into these forms.
  void apply(Json& message) const;
};

// The texts of parts, a line between them: what vLLM and llama.cpp make of parts for templates that
// read strings.
std::string joined_parts(const Json& parts);

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

  // The render() of a request brought into these forms, with a small bound on its steps; nothing
  // when the template refuses it. For finding out what a template understands.
  std::optional<MarkedText> probe(ChatRequest request) const;

  const MessageForms& forms() const { return forms_; }

 private:
  Json variables(const ChatRequest& request) const;
  void find_content_form(const char* role);
  ArgumentForm find_argument_form() const;

  jinja::Template template_;
  std::map<std::string, std::string> special_tokens_;
  MessageForms forms_;
};

// What templates are probed with: the tool "probe_tool" with the parameters "place" and "count",
// and a conversation in which it is called once, after a user message of kProbeQuestion.
inline constexpr std::string_view kProbeQuestion = "probe_question";
Json probe_message(std::string_view role, Json content);
Json probe_tools();
Json probe_call(Json content, Json arguments, Json result_content);

// Throws BadInput unless `messages` is an array of objects with a string "role". All else is
// between them and the template.
void validate_messages(const Json& messages);

// The template to use out of "chat_template" in a tokenizer_config.json: a string, or a list of
// {"name", "template"} of which "tool_use" serves requests with tools and "default" all others.
std::string select_chat_template(const Json& chat_template, bool has_tools);

}  // namespace moeflux
