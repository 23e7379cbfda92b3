// The chat itself: reads what the user types, does what commands say and lets the model answer
// everything else, until the user leaves. Errors are told and end nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat/answer_view.h"
#include "cli/chat/attachment.h"
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
  ChatAttachments attachments = {};

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

// Commands within a chat: "/name rest". Lines that begin with "//" are messages that begin with
// "/".
enum class Slash {
  Help,
  Clear,
  System,
  Save,
  Load,
  Sessions,
  Model,
  Attach,
  Edit,
  Set,
  Show,
  Stats,
  Retry,
  Undo,
  Quit
};

struct SlashCommand {
  Slash kind;
  std::string rest;  // without the blanks around it
};

// Nothing: the line is a message. Throws Error(BadInput) for a command that does not exist, with
// the one that was meant.
std::optional<SlashCommand> parse_slash(std::string_view line);

// A message as it is sent: "//" becomes "/".
std::string unescape_slash(std::string_view line);

std::string slash_help();
std::vector<std::string> slash_names();  // with the slash

class ChatLoop {
 public:
  explicit ChatLoop(Chat& chat) : chat_(chat) {}

  // The exit code: 130 after two quick Ctrl-C, and 1 when the input is no terminal and something
  // went wrong.
  int run();

  void show_conversation() const;  // the end of it, for whoever comes back

 private:
  struct Message {
    std::string text;
    bool quoted = false;
  };
  using Clock = std::chrono::steady_clock;

  void guarded(const std::function<void()>& work);  // reports what it throws
  std::optional<Message> read_message();            // nothing: the chat ends, see exit_code_
  bool on_interrupt();                              // false: it was the second one
  void take(const Message& message);
  void say(const std::string& text);
  void answer();
  void execute(const SlashCommand& command);
  void start_new();
  void load(const std::string& name);
  void save_as(const std::string& name);
  void list_sessions(const std::string& words) const;
  void change_system(const std::string& text);
  void change_model(const std::string& name);
  void attach(const std::string& path);
  void edit(const std::string& draft);
  void change(const std::string& rest);
  void retry();
  void undo();
  std::string description() const;
  void report(const std::string& message);

  Chat& chat_;
  bool quits_ = false, had_error_ = false;
  int exit_code_ = 0;
  std::optional<Clock::time_point> last_interrupt_;
};

}  // namespace moeflux::cli
