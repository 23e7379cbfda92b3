// One turn of a chat: the model's reply to the last message, and its replies to what its tools give
// until it calls no more.
#pragma once

#include <cstdint>
#include <optional>

#include "cli/chat/answer_view.h"
#include "cli/chat/backend.h"
#include "cli/chat/session.h"
#include "cli/chat/settings.h"
#include "cli/chat/tools.h"
#include "cli/options/general_options.h"

namespace moeflux::cli {

// All that a chat consists of. References must outlive it.
struct Chat {
  ChatBackend& backend;
  LineSource& lines;
  const ChatStore& store;
  const ChatTools& tools;
  const GeneralOptions& general;
  ToolRunner& runner;
  ChatSettings settings;
  ChatSession session;
  Json template_variables = Json::object();
  std::int64_t max_calls = 16;  // rounds of tools in a turn
  std::optional<ChatReply> last_reply = {};

  bool interactive() const { return lines.is_interactive(); }
};

enum class TurnEnd { Done, Stopped };

// The last message is the user's. Ctrl-C stops the reply; what was said by then is kept and marked.
// The session is saved after every reply. Throws Error, and the session is as before the message,
// when there is no reply.
TurnEnd answer_turn(Chat& chat);

// The messages as a backend takes them: without what only the session's file has.
Json plain_messages(const Json& messages);

// How replies are shown now.
ViewOptions view_options(const Chat& chat);

}  // namespace moeflux::cli
