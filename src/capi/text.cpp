// Text to tokens and back, and chats to prompts. None of it needs the engine's turn: tokenizer and
// templates never change.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/params.h"

namespace moeflux::capi {
namespace {

void check_flags(int flags, int known) {
  if ((flags & ~known) != 0) fail_with(MF_ERROR_BAD_INPUT, "flags {} are not known here", flags);
}

void hand_over(const std::vector<TokenId>& ids, std::int32_t* tokens, std::size_t capacity,
               std::size_t* n) {
  need(n, "n") = ids.size();
  if (ids.size() > capacity) {
    fail_with(MF_ERROR_BUFFER_TOO_SMALL, "{} tokens do not fit into a buffer for {}", ids.size(),
              capacity);
  }
  if (!ids.empty()) std::copy(ids.begin(), ids.end(), &need(tokens, "tokens"));
}

void hand_over(const std::string& text, char* buffer, std::size_t capacity, std::size_t* n) {
  need(n, "n") = text.size();
  if (text.size() >= capacity) {
    fail_with(MF_ERROR_BUFFER_TOO_SMALL, "{} bytes and a NUL do not fit into a buffer for {}",
              text.size(), capacity);
  }
  std::memcpy(&need(buffer, "text"), text.c_str(), text.size() + 1);
}

Json optional_json(const char* text, const char* name, bool (Json::*is_kind)() const,
                   const char* kind) {
  if (text == nullptr) return nullptr;
  Json value = parse_json(text, name);
  if (!(value.*is_kind)()) fail_with(MF_ERROR_BAD_INPUT, "{} must be {}", name, kind);
  return value;
}

Json messages_of(const mf_chat_params& params) {
  if ((params.messages != nullptr) == (params.messages_json != nullptr)) {
    fail_with(MF_ERROR_BAD_INPUT, "give either messages or messages_json");
  }
  if (params.messages_json != nullptr) return parse_json(params.messages_json, "messages_json");
  Json messages = Json::array();
  for (std::size_t i = 0; i < params.n_messages; ++i) {
    Json message = Json::object();
    message["role"] = &need(params.messages[i].role, "role");
    message["content"] = &need(params.messages[i].content, "content");
    messages.push_back(std::move(message));
  }
  return messages;
}

MarkedText render(const Engine& engine, const mf_chat_params* chat) {
  const mf_chat_params params = read_params(&need(chat, "chat"), "mf_chat_params");
  constexpr auto is_array = static_cast<bool (Json::*)() const>(&Json::is_array);
  constexpr auto is_object = static_cast<bool (Json::*)() const>(&Json::is_object);
  ChatRequest request;
  request.messages = messages_of(params);
  request.tools = optional_json(params.tools_json, "tools_json", is_array, "an array");
  request.documents = optional_json(params.documents_json, "documents_json", is_array, "an array");
  if (params.variables_json != nullptr) {
    request.extra = optional_json(params.variables_json, "variables_json", is_object, "an object");
  }
  request.add_generation_prompt = params.no_generation_prompt == 0;
  const bool with_tools = request.tools.is_array() && !request.tools.empty();
  return engine.chat_template(with_tools).render(request);
}

}  // namespace
}  // namespace moeflux::capi

using namespace moeflux;
using namespace moeflux::capi;

mf_status mf_tokenize(const mf_model* model, const char* text, size_t text_bytes, int flags,
                      int32_t* tokens, size_t capacity, size_t* n) {
  return guarded([&] {
    const Tokenizer& tokenizer = need(model, "model").shared->engine.tokenizer();
    check_flags(flags, MF_TEXT_CONTROL | MF_TEXT_ADD_SPECIAL);
    const std::string_view all =
        text_bytes == 0 ? std::string_view() : std::string_view(&need(text, "text"), text_bytes);
    std::vector<TokenId> ids =
        (flags & MF_TEXT_CONTROL) != 0 ? tokenizer.encode_markup(all) : tokenizer.encode_data(all);
    if ((flags & MF_TEXT_ADD_SPECIAL) != 0) ids = tokenizer.with_special_tokens(std::move(ids));
    hand_over(ids, tokens, capacity, n);
  });
}

mf_status mf_detokenize(const mf_model* model, const int32_t* tokens, size_t n_tokens, int flags,
                        char* text, size_t capacity, size_t* n) {
  return guarded([&] {
    const Engine& engine = need(model, "model").shared->engine;
    check_flags(flags, MF_TEXT_SKIP_SPECIAL);
    const std::span<const TokenId> ids =
        n_tokens == 0 ? std::span<const TokenId>()
                      : std::span<const TokenId>(&need(tokens, "tokens"), n_tokens);
    check_tokens(engine, ids);
    hand_over(engine.tokenizer().decode(ids, (flags & MF_TEXT_SKIP_SPECIAL) != 0), text, capacity,
              n);
  });
}

mf_status mf_apply_template(const mf_model* model, const mf_chat_params* chat, char* text,
                            size_t capacity, size_t* n) {
  return guarded([&] {
    hand_over(render(need(model, "model").shared->engine, chat).text, text, capacity, n);
  });
}

mf_status mf_tokenize_chat(const mf_model* model, const mf_chat_params* chat, int32_t* tokens,
                           size_t capacity, size_t* n) {
  return guarded([&] {
    const Engine& engine = need(model, "model").shared->engine;
    hand_over(engine.tokenizer().encode(render(engine, chat)), tokens, capacity, n);
  });
}
