// Where in the prompt of a chat a session is worth keeping: at the places up to which a later
// prompt will be the same. Templates decide that, and they differ: many leave out old thoughts, so
// that the next turn shares nothing of what the model has said. So it is tried out: the chat is
// rendered as it might go on, and the tokens are compared.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

struct PrefixPoints {
  std::vector<std::int64_t> positions;  // ascending
  // Whether a later turn can begin with the prompt and the answer as the model has written it.
  bool answer_stays = false;
};

// `prompt`: the tokens of `chat` rendered. A template that refuses a trial gives no point there.
PrefixPoints find_prefix_points(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                const ChatRequest& chat, std::span<const TokenId> prompt);

// What every prompt will begin with that goes on after `answer` to `chat`. Empty when the template
// refuses the trial.
std::vector<TokenId> next_turn_prefix(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                      const ChatRequest& chat, const std::string& answer);

}  // namespace moeflux
