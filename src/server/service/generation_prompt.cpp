#include "server/service/generation_prompt.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/engine.h"
#include "engine/prefix/prefix_points.h"
#include "server/http/http.h"
#include "text/replies/reply_harmony.h"
#include "text/replies/reply_history.h"

namespace moeflux {
namespace {

// Normalization can make a text shorter, at most by this: three letters of Hangul become one of as
// many bytes as each of them had.
constexpr std::size_t kMostShortened = 3;

bool is_some(const Json& list) {
  return list.is_array() && !list.empty();
}

std::size_t longest_token(const Tokenizer& tokenizer) {
  std::size_t longest = 1;
  for (std::size_t id = 0; id < tokenizer.n_ids(); ++id)
    longest = std::max(longest, tokenizer.token_bytes(static_cast<TokenId>(id)).size());
  return longest;
}

// ---- going on from the last message

// Put behind the text of a message to see where a template leaves it.
constexpr std::string_view kHere = "~the answer goes on here~";

bool has_some(const Json& message, const char* name) {
  const auto found = message.find(name);
  return found != message.end() && !found->is_null() && !found->empty() && *found != "";
}

// What the message has of the answer: its text, or where it has none its thought. Null: nothing.
Json* begun_part(Json& message, const std::string& thought_field) {
  if (has_some(message, "content")) {
    Json& content = message["content"];
    return content.is_array() ? &content.back()["text"] : &content;
  }
  return has_some(message, thought_field.c_str()) ? &message[thought_field] : nullptr;
}

bool is_begun(const Json& messages) {
  if (!messages.is_array() || messages.empty() || !messages.back().is_object()) return false;
  const Json& last = messages.back();
  if (last.value("role", Json()) != "assistant" || has_some(last, "tool_calls") ||
      has_some(last, "function_call"))
    return false;
  for (const char* name : {"content", "reasoning_content", "reasoning", "thinking"}) {
    if (has_some(last, name)) return true;
  }
  return false;
}

bool read_continues(const GenerationRequest& request) {
  const bool begun = is_begun(request.messages);
  if (request.continues.value_or(false) && !begun) {
    throw bad_request(
        "continue_final_message needs a last message of the assistant with a text and without "
        "calls",
        "continue_final_message");
  }
  return request.continues.value_or(begun);
}

HttpError too_long(const char* bound, std::int64_t n_tokens, std::int64_t context) {
  return HttpError(400, "exceed_context_size_error",
                   fmt::format("the request has {}{} tokens, but the context holds {}; shorten it, "
                               "or start the server with a larger --ctx-size",
                               bound, n_tokens, context))
      .with_number("n_prompt_tokens", n_tokens)
      .with_number("n_ctx", context);
}

}  // namespace

PromptMaker::PromptMaker(const Engine& engine, std::uint64_t render_bytes)
    : engine_(engine), longest_token_(longest_token(engine.tokenizer())) {
  if (render_bytes > 0) {
    jinja::RenderLimits& limits = rendering_.limits;
    limits.max_memory_bytes = std::min<std::uint64_t>(limits.max_memory_bytes, render_bytes);
    limits.max_output_bytes = std::min<std::uint64_t>(limits.max_output_bytes, render_bytes);
  }
  if (!engine.has_chat_template()) return;
  profile_ = detect_reply_profile(engine.chat_template(false));
  tool_profile_ = detect_reply_profile(engine.chat_template(true));
}

void PromptMaker::check_length(std::size_t n_tokens, const std::string& field) const {
  const auto n = static_cast<std::int64_t>(n_tokens);
  const std::int64_t context = engine_.context_length();
  if (n == 0) throw bad_request("the prompt is empty", field);
  if (n > context) throw too_long("", n, context);
}

void PromptMaker::check_bytes(std::size_t n_bytes) const {
  const auto least = static_cast<std::int64_t>(n_bytes / (longest_token_ * kMostShortened));
  if (least > engine_.context_length())
    throw too_long("at least ", least, engine_.context_length());
}

void PromptMaker::check_texts(const Json& body, const char* field) const {
  const auto prompt = body.find(field);
  if (prompt == body.end()) return;
  const auto check = [&](const Json& text) {
    if (text.is_string()) check_bytes(text.get_ref<const std::string&>().size());
  };
  check(*prompt);
  if (!prompt->is_array()) return;
  for (const Json& each : *prompt) {
    check(each);
    if (each.is_array()) std::for_each(each.begin(), each.end(), check);
  }
}

PromptMaker::Chat PromptMaker::make_chat(const GenerationRequest& request) const {
  if (!engine_.has_chat_template()) {
    throw HttpError(501, "not_supported_error",
                    "this model has no chat template; ask it with /v1/completions");
  }
  Chat chat;
  const Json tools = naming("tools", [&] { return normalize_tools(request.tools); });
  chat.choice = naming("tool_choice", [&] { return read_tool_choice(request.tool_choice, tools); });
  chat.tools = tools_to_render(chat.choice, tools);
  chat.request.messages = naming(request.messages_field, [&] {
    return normalize_messages(request.messages, profile(is_some(chat.tools)));
  });
  chat.request.tools = tools_for_template(chat.tools, profile(is_some(chat.tools)));
  chat.request.extra = request.template_variables;
  const Json thinking = thinking_variables(request.thinking);
  for (const auto& [name, value] : thinking.items()) chat.request.extra[name] = value;
  adapt_thinking_variables(profile(is_some(chat.tools)).format, chat.request.extra);
  chat.continues = read_continues(request);
  using Mode = ToolChoice::Mode;
  if (chat.continues && (chat.choice.mode == Mode::Required || chat.choice.mode == Mode::Named)) {
    throw bad_request(
        "tool_choice demands a call, which the text of the last message cannot go on with",
        "tool_choice");
  }
  return chat;
}

MarkedText PromptMaker::render(const Chat& chat, const char* messages_field) const {
  if (chat.continues) return render_begun(chat, messages_field);
  return naming(messages_field, [&] {
    return engine_.chat_template(is_some(chat.tools)).render(chat.request, rendering_);
  });
}

// The chat up to the end of what its last message says: the template writes more behind it.
MarkedText PromptMaker::render_begun(const Chat& chat, const char* messages_field) const {
  Chat marked = chat;
  marked.continues = false;
  marked.request.add_generation_prompt = false;
  Json* part =
      begun_part(marked.request.messages.back(), profile(is_some(chat.tools)).thought_field);
  if (part == nullptr) throw bad_request("the last message has no text to go on from", "messages");
  part->get_ref<std::string&>() += kHere;
  MarkedText text = render(marked, messages_field);
  const std::size_t end = text.text.rfind(kHere);
  if (end == std::string::npos) {
    throw HttpError(501, "not_supported_error",
                    "this model's template does not show the text of the last message, so the "
                    "answer cannot go on from it");
  }
  text.text.resize(end);
  std::erase_if(text.data, [&](const MarkedText::Range& range) { return range.begin >= end; });
  if (!text.data.empty()) text.data.back().end = std::min(text.data.back().end, end);
  return text;
}

void PromptMaker::set_begun(Chat chat, GenerationPrompt& prompt) const {
  Json& last = chat.request.messages.back();
  const bool is_text = has_some(last, "content");
  const bool is_harmony = prompt.format == ReplyFormat::Harmony;
  std::string text;
  if (is_text && last["content"].is_array()) {
    for (const Json& part : last["content"]) text += part.at("text").get<std::string>();
  } else {
    text = begun_part(last, profile(is_some(chat.tools)).thought_field)->get<std::string>();
  }
  prompt.begun = is_harmony && is_text ? std::string(kHarmonyAnswer) + text : text;
  prompt.form_begun = is_text      ? prompt.begun
                      : is_harmony ? std::string(kHarmonyThought) + text
                                   : "";
  prompt.reply.opens_thought = !is_text;
  prompt.thinks = prompt.thinks && !is_text;
}

MarkedText PromptMaker::render(const GenerationRequest& request) const {
  return render(make_chat(request), request.messages_field);
}

GenerationPrompt PromptMaker::make_chat_prompt(const GenerationRequest& request) const {
  const Chat chat = make_chat(request);
  const ChatTemplate& chat_template = engine_.chat_template(is_some(chat.tools));
  const MarkedText text = render(chat, request.messages_field);
  check_bytes(text.text.size());
  GenerationPrompt prompt;
  prompt.tokens = engine_.tokenizer().encode(text);
  check_length(prompt.tokens.size());
  ChatRequest kept = chat.request;
  if (chat.continues) kept.messages.erase(kept.messages.size() - 1);
  prompt.keep_at =
      find_prefix_points(chat_template, engine_.tokenizer(), kept, prompt.tokens).positions;
  prompt.is_chat = true;
  prompt.format = profile(is_some(chat.tools)).format;
  prompt.thinks = profile(is_some(chat.tools)).thinks;
  prompt.reply = {.opens_thought = prompt_opens_thought(text),
                  .tools = chat.tools,
                  .stream_arguments = request.stream_arguments};
  prompt.tool_choice = chat.choice;
  if (chat.continues) set_begun(chat, prompt);
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
