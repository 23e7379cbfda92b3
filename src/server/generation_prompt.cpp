#include "server/generation_prompt.h"

#include <fmt/format.h>

#include "engine/engine.h"
#include "engine/prefix_points.h"
#include "server/http.h"
#include "server/request_fields.h"
#include "text/reply_history.h"

namespace moeflux {
namespace {

bool is_some(const Json& list) {
  return list.is_array() && !list.empty();
}

}  // namespace

PromptMaker::PromptMaker(const Engine& engine) : engine_(engine) {
  if (!engine.has_chat_template()) return;
  profile_ = detect_reply_profile(engine.chat_template(false));
  tool_profile_ = detect_reply_profile(engine.chat_template(true));
}

void PromptMaker::check_length(std::size_t n_tokens) const {
  const auto n = static_cast<std::int64_t>(n_tokens);
  const std::int64_t context = engine_.context_length();
  if (n == 0) throw bad_request("the prompt is empty", "prompt");
  if (n <= context) return;
  throw HttpError(400, "exceed_context_size_error",
                  fmt::format("the request has {} tokens, but the context holds {}; shorten it, or "
                              "start the server with a larger --ctx-size",
                              n, context))
      .with_number("n_prompt_tokens", n)
      .with_number("n_ctx", context);
}

PromptMaker::Chat PromptMaker::make_chat(const GenerationRequest& request) const {
  if (!engine_.has_tokenizer() || !engine_.has_chat_template()) {
    throw HttpError(501, "not_supported_error",
                    "this model has no chat template; ask it with /v1/completions");
  }
  Chat chat;
  const Json tools = naming("tools", [&] { return normalize_tools(request.tools); });
  chat.choice = naming("tool_choice", [&] { return read_tool_choice(request.tool_choice, tools); });
  chat.tools = tools_to_render(chat.choice, tools);
  chat.request.messages = naming("messages", [&] {
    return normalize_messages(request.messages, profile(is_some(chat.tools)));
  });
  chat.request.tools = chat.tools;
  chat.request.extra = request.template_variables;
  const Json thinking = thinking_variables(request.thinking);
  for (const auto& [name, value] : thinking.items()) chat.request.extra[name] = value;
  return chat;
}

MarkedText PromptMaker::render(const GenerationRequest& request) const {
  const Chat chat = make_chat(request);
  return naming("messages",
                [&] { return engine_.chat_template(is_some(chat.tools)).render(chat.request); });
}

GenerationPrompt PromptMaker::make_chat_prompt(const GenerationRequest& request) const {
  const Chat chat = make_chat(request);
  const ChatTemplate& chat_template = engine_.chat_template(is_some(chat.tools));
  const MarkedText text = naming("messages", [&] { return chat_template.render(chat.request); });
  GenerationPrompt prompt;
  prompt.tokens = engine_.tokenizer().encode(text);
  check_length(prompt.tokens.size());
  prompt.keep_at =
      find_prefix_points(chat_template, engine_.tokenizer(), chat.request, prompt.tokens).positions;
  prompt.is_chat = true;
  prompt.format = profile(is_some(chat.tools)).format;
  prompt.reply = {.opens_thought = prompt_opens_thought(text),
                  .tools = chat.tools,
                  .stream_arguments = request.stream_arguments};
  prompt.tool_choice = chat.choice;
  return prompt;
}

std::vector<GenerationPrompt> PromptMaker::make(const GenerationRequest& request) const {
  std::vector<GenerationPrompt> prompts;
  if (!request.messages.is_null()) {
    prompts.push_back(make_chat_prompt(request));
    return prompts;
  }
  for (const std::vector<TokenId>& tokens : request.prompts) {
    check_length(tokens.size());
    prompts.push_back({.tokens = tokens});
  }
  if (prompts.empty()) throw bad_request("there is no prompt", "prompt");
  return prompts;
}

}  // namespace moeflux
