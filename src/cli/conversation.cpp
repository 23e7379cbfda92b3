#include "cli/conversation.h"

#include "base/error.h"
#include "cli/terminal/text_input.h"

namespace moeflux::cli {
namespace {

Json message(const char* role, const std::string& content) {
  Json object = Json::object();
  object["role"] = role;
  object["content"] = content;
  return object;
}

void read_messages(const std::string& path, ChatRequest& chat) {
  const Json file = read_json(path);
  const Json* messages = &file;
  if (file.is_object()) {
    const JsonFields fields(file, path);
    messages = fields.find("messages");
    if (const Json* tools = fields.find("tools")) chat.tools = *tools;
  }
  if (messages == nullptr || !messages->is_array()) {
    fail(Errc::BadInput, "{}: expected a list of messages, or an object with \"messages\"", path);
  }
  for (const Json& each : *messages) {
    if (!each.is_object())
      fail(Errc::BadInput, "{}: a message must be an object with \"role\" and \"content\"", path);
    chat.messages.push_back(each);
  }
}

}  // namespace

Json parse_kwargs(const std::string& text) {
  Json kwargs;
  try {
    kwargs = parse_json(text, "--kwargs");
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  if (!kwargs.is_object()) throw UsageError("--kwargs: must be a JSON object");
  return kwargs;
}

void add_conversation_options(Command& command, ConversationOptions& options) {
  command
      .option("--messages", options.messages, "FILE",
              "JSON list of messages so far (-: standard input)")
      .option("--tools", options.tools, "FILE", "JSON list of tools the model may call")
      .flag("--no-think", options.no_think, "enable_thinking=false: answer without reasoning first")
      .option("--kwargs", options.kwargs, "JSON",
              "more variables for the template, as a JSON object");
}

ChatRequest make_conversation(const ConversationOptions& options,
                              const std::optional<std::string>& prompt) {
  ChatRequest chat;
  chat.messages = Json::array();
  if (options.system) {
    check_utf8(*options.system, "--system");
    chat.messages.push_back(message("system", *options.system));
  }
  if (options.messages) read_messages(*options.messages, chat);
  if (prompt) chat.messages.push_back(message("user", *prompt));
  if (options.tools) {
    chat.tools = read_json(*options.tools);
    if (!chat.tools.is_array())
      fail(Errc::BadInput, "{}: expected a list of tools", *options.tools);
  }
  if (options.no_think) chat.extra["enable_thinking"] = false;
  if (options.kwargs) chat.extra.update(parse_kwargs(*options.kwargs));
  return chat;
}

bool has_tools(const ChatRequest& chat) {
  return chat.tools.is_array() && !chat.tools.empty();
}

}  // namespace moeflux::cli
