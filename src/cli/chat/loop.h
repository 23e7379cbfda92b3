// The chat itself: reads what the user types, does what commands say and lets the model answer
// everything else, until the user leaves. Errors are told and end nothing.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat/turn.h"

namespace moeflux::cli {

// Commands within a chat: "/name rest". Lines that begin with "//" are messages that begin with
// "/".
enum class Slash { Help, Clear, System, Save, Load, Sessions, Set, Show, Stats, Retry, Undo, Quit };

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
  void change_system(const std::string& text);
  void change(const std::string& rest);
  void retry();
  void undo();
  std::string description() const;
  void report(const std::string& message);
  void print(const std::string& text) const;

  Chat& chat_;
  bool quits_ = false, had_error_ = false;
  int exit_code_ = 0;
  std::optional<Clock::time_point> last_interrupt_;
};

std::string session_list(const ChatStore& store);

}  // namespace moeflux::cli
