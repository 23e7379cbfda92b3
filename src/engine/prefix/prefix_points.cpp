#include "engine/prefix/prefix_points.h"

#include <algorithm>

#include "base/error.h"

namespace moeflux {
namespace {

// Contents that begin with different characters: what two trials share with the prompt is there
// whatever the content.
constexpr const char* kTrials[] = {"0", "A"};

std::int64_t shared(std::span<const TokenId> prompt, std::span<const TokenId> other) {
  return std::mismatch(prompt.begin(), prompt.end(), other.begin(), other.end()).first -
         prompt.begin();
}

// The least that the prompt shares with what edit(chat, content) is rendered to; 0 when one of them
// cannot be.
template <class Edit>
std::int64_t shared_with_all(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                             const ChatRequest& chat, std::span<const TokenId> prompt, Edit edit) {
  auto least = static_cast<std::int64_t>(prompt.size());
  for (const char* content : kTrials) {
    ChatRequest other = chat;
    edit(other, content);
    try {
      least = std::min(least, shared(prompt, tokenizer.encode(chat_template.render(other))));
    } catch (const Error&) {
      return 0;
    }
  }
  return least;
}

Json message_of(const char* role, const std::string& content) {
  return Json{{"role", role}, {"content", content}};
}

void add_message(const ChatTemplate& chat_template, ChatRequest& chat, Json message) {
  chat_template.forms().apply(message);
  chat.messages.push_back(std::move(message));
}

}  // namespace

PrefixPoints find_prefix_points(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                const ChatRequest& chat, std::span<const TokenId> prompt) {
  const auto size = static_cast<std::int64_t>(prompt.size());
  const auto try_out = [&](auto edit) {
    return shared_with_all(chat_template, tokenizer, chat, prompt, edit);
  };
  // Another chat with the same system message and tools.
  const std::int64_t system = try_out([&](ChatRequest& other, const char* content) {
    Json messages = Json::array();
    if (!other.messages.empty() && other.messages[0].value("role", "") == "system")
      messages.push_back(other.messages[0]);
    other.messages = std::move(messages);
    add_message(chat_template, other, message_of("user", content));
  });
  // This chat after an answer and one more question.
  const std::int64_t next_turn = try_out([&](ChatRequest& other, const char* content) {
    add_message(chat_template, other, message_of("assistant", content));
    add_message(chat_template, other, message_of("user", "0"));
  });

  // After a call of a tool and its result: many templates leave out only the thoughts before the
  // last question.
  const bool has_tools = chat.tools.is_array() && !chat.tools.empty();
  const std::int64_t tool_result =
      !has_tools ? 0 : try_out([&](ChatRequest& other, const char* content) {
        Json call = message_of("assistant", "");
        call["reasoning_content"] = content;
        call["tool_calls"] = Json::array(
            {{{"type", "function"}, {"function", {{"name", "f"}, {"arguments", Json::object()}}}}});
        add_message(chat_template, other, std::move(call));
        add_message(chat_template, other, message_of("tool", "0"));
      });

  PrefixPoints points;
  points.answer_stays = next_turn == size || tool_result == size;
  for (const std::int64_t point : {system, next_turn}) {
    if (point > 0 && point < size) points.positions.push_back(point);
  }
  std::sort(points.positions.begin(), points.positions.end());
  return points;
}

std::vector<TokenId> next_turn_prefix(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                      const ChatRequest& chat, const std::string& answer) {
  const auto render = [&](const char* content) {
    ChatRequest next = chat;
    add_message(chat_template, next, message_of("assistant", answer));
    add_message(chat_template, next, message_of("user", content));
    return tokenizer.encode(chat_template.render(next));
  };
  try {
    std::vector<TokenId> tokens = render(kTrials[0]);
    tokens.resize(static_cast<std::size_t>(shared(tokens, render(kTrials[1]))));
    return tokens;
  } catch (const Error&) {
    return {};
  }
}

}  // namespace moeflux
