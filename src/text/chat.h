// From the messages of a chat request to the marked text of a prompt, by the model's own template.
//
// Clients write OpenAI's form: tool-call arguments as a JSON string, content as text or as parts.
// Templates differ in what they can read, so each is tried out once when it is loaded and messages
// are brought into the form it understands. Immutable after construction: any thread may render.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/jinja/template.h"
#include "text/marked_text.h"

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
  // What the arguments of a tool call are when the template sees them.
  enum class ArgumentForm { Object, String };
  // What the content of a message is when the template sees it.
  enum class ContentForm { AsGiven, String, Parts };

  // `special_tokens` maps names such as "bos_token" to their text; they become variables. Throws
  // what parsing the template throws; `name` is its name in errors.
  ChatTemplate(std::string_view source, std::string name,
               std::map<std::string, std::string> special_tokens);

  // Throws BadInput when the messages are malformed or the template refuses them.
  MarkedText render(const ChatRequest& request, const jinja::RenderOptions& options = {}) const;

  ArgumentForm argument_form() const { return argument_form_; }
  ContentForm content_form() const { return content_form_; }

 private:
  Json variables(const ChatRequest& request) const;
  std::string try_out(const Json& messages, const Json& tools) const;  // empty when it fails
  ArgumentForm find_argument_form() const;
  ContentForm find_content_form() const;

  jinja::Template template_;
  std::map<std::string, std::string> special_tokens_;
  ContentForm content_form_ = ContentForm::AsGiven;
  ArgumentForm argument_form_ = ArgumentForm::Object;
};

// Throws BadInput unless `messages` is an array of objects with a string "role" and a "content"
// that is a string, an array of objects, null or absent.
void validate_messages(const Json& messages);

// The template to use out of "chat_template" in a tokenizer_config.json: a string, or a list of
// {"name", "template"} of which "tool_use" serves requests with tools and "default" all others.
std::string select_chat_template(const Json& chat_template, bool has_tools);

}  // namespace moeflux
