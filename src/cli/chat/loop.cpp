#include "cli/chat/loop.h"

#include <algorithm>
#include <iterator>

#include <poll.h>
#include <unistd.h>

#include "base/error.h"
#include "base/suggestion.h"
#include "cli/chat/external_editor.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "cli/terminal/text_input.h"

namespace moeflux::cli {
namespace {

struct Known {
  const char* name;
  Slash kind;
  const char* arguments;
  const char* help;  // null: another name for the one before
};

constexpr Known kCommands[] = {
    {"help", Slash::Help, "", "this list"},
    {"?", Slash::Help, "", nullptr},
    {"clear", Slash::Clear, "", "begin a new conversation; the old one stays saved"},
    {"system", Slash::System, "[TEXT]", "show or set the system message (\"\": none)"},
    {"save", Slash::Save, "NAME", "keep the conversation under a name and go on in it"},
    {"load", Slash::Load, "NAME or WORDS", "go on with a saved conversation"},
    {"sessions", Slash::Sessions, "[WORDS]", "list the saved conversations, with these words"},
    {"model", Slash::Model, "[NAME]", "go on with another model; without a name: what there is"},
    {"attach", Slash::Attach, "[FILE]", "send a text file with the next message (-: none)"},
    {"edit", Slash::Edit, "[TEXT]", "write the message in $VISUAL or $EDITOR"},
    {"set", Slash::Set, "[KEY VALUE]", "change a setting; without a key: what there is"},
    {"show", Slash::Show, "", "model, session and settings"},
    {"stats", Slash::Stats, "", "what the last answer took"},
    {"retry", Slash::Retry, "", "answer the last question again"},
    {"undo", Slash::Undo, "", "take the last question and its answer back"},
    {"quit", Slash::Quit, "", "end the chat (also /exit, /bye, Ctrl-D)"},
    {"exit", Slash::Quit, "", nullptr},
    {"bye", Slash::Quit, "", nullptr},
};

std::string trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1));
}

constexpr const char* kPrompt = ">>> ";
constexpr const char* kMorePrompt = "... ";
constexpr std::chrono::milliseconds kTwice{1500};  // between two Ctrl-C that mean to leave
constexpr std::size_t kShownMessages = 10;

bool input_waits() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, 0) > 0;
}

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

}  // namespace

std::optional<SlashCommand> parse_slash(std::string_view line) {
  if (line.empty() || line[0] != '/' || line.substr(0, 2) == "//") return std::nullopt;
  const std::size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string name(line.substr(1, end - 1));
  for (const Known& known : kCommands)
    if (name == known.name) return SlashCommand{known.kind, trim(line.substr(end))};
  std::vector<std::string> names;
  for (const Known& known : kCommands) names.emplace_back(known.name);
  const std::string meant = closest(name, names);
  fail(Errc::BadInput, "there is no command /{}{}; /help lists them, // begins a message with /",
       safe_line(name), meant.empty() ? "" : fmt::format(", did you mean /{}?", meant));
}

std::string unescape_slash(std::string_view line) {
  return std::string(line.substr(line.substr(0, 2) == "//" ? 1 : 0));
}

std::string slash_help() {
  std::string text;
  for (const Known& known : kCommands) {
    if (known.help == nullptr) continue;
    text +=
        fmt::format("  {:<22}{}\n", fmt::format("/{} {}", known.name, known.arguments), known.help);
  }
  return text +
         "A message of several lines: between \"\"\" and \"\"\", with a backslash at the end of "
         "each "
         "line,\nor pasted. Ctrl-C stops an answer or clears the line, twice it ends the chat.\n";
}

std::vector<std::string> slash_names() {
  std::vector<std::string> names;
  for (const Known& known : kCommands) names.push_back(fmt::format("/{}", known.name));
  return names;
}

int ChatLoop::run() {
  while (!quits_) {
    // Whatever goes wrong with a message, the next one may be better; but where none can be read
    // the terminal is gone, and so is the reason to go on.
    guarded([&] {
      if (const std::string warning = chat_.backend.warning(); !warning.empty())
        chat_.general.note(warning);
      chat_.backend.between_turns(input_waits);
    });
    const std::optional<Message> message = read_message();
    if (!message) break;
    guarded([&] { take(*message); });
  }
  if (exit_code_ != 0) return exit_code_;
  return had_error_ && !chat_.interactive() ? kFailure : kSuccess;
}

void ChatLoop::guarded(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    report("out of memory");
  } catch (const std::exception& error) {
    report(error.what());
  }
}

std::optional<ChatLoop::Message> ChatLoop::read_message() {
  InputAssembler assembler;
  while (true) {
    const InputLine line = chat_.lines.read(assembler.is_open() ? kMorePrompt : kPrompt);
    std::optional<std::string> text;
    switch (line.end) {
      case InputEnd::Interrupt:
        if (!on_interrupt()) return std::nullopt;
        assembler.clear();
        continue;
      case InputEnd::EndOfInput:
        quits_ = true;
        if (chat_.interactive()) write_stdout("\n");
        text = chat_.interactive() ? std::nullopt : assembler.finish();
        if (!text) return std::nullopt;
        break;
      case InputEnd::Line:
        text = assembler.add(line.text);
        break;
    }
    if (text && !is_blank(*text)) return Message{std::move(*text), assembler.was_quoted()};
  }
}

bool ChatLoop::on_interrupt() {
  const Clock::time_point now = Clock::now();
  if (last_interrupt_ && now - *last_interrupt_ < kTwice) {
    exit_code_ = kInterrupted;
    return false;
  }
  last_interrupt_ = now;
  write_stdout(styled("(Ctrl-C again or Ctrl-D ends the chat)", Style::Dim,
                      chat_.general.color_on_stdout()) +
               "\n");
  return true;
}

void ChatLoop::take(const Message& message) {
  check_utf8(message.text, "the message");
  chat_.lines.remember(message.text);
  const auto command = message.quoted ? std::nullopt : parse_slash(message.text);
  if (command) {
    execute(*command);
  } else {
    say(message.quoted ? message.text : unescape_slash(message.text));
  }
}

void ChatLoop::say(const std::string& text) {
  chat_.session.add({{"role", "user"}, {"content", chat_.attachments.take(text)}},
                    chat_.backend.model());
  answer();
}

void ChatLoop::answer() {
  if (answer_turn(chat_) == TurnEnd::Stopped) last_interrupt_ = Clock::now();
}

void ChatLoop::execute(const SlashCommand& command) {
  switch (command.kind) {
    case Slash::Help:
      return write_stdout(slash_help());
    case Slash::Clear:
      return start_new();
    case Slash::System:
      return change_system(command.rest);
    case Slash::Save:
      return save_as(command.rest);
    case Slash::Load:
      return load(command.rest);
    case Slash::Sessions:
      return list_sessions(command.rest);
    case Slash::Model:
      return change_model(command.rest);
    case Slash::Attach:
      return attach(command.rest);
    case Slash::Edit:
      return edit(command.rest);
    case Slash::Set:
      return change(command.rest);
    case Slash::Show:
      return write_stdout(description());
    case Slash::Stats:
      if (!chat_.last_reply) return write_stdout("nothing was answered yet\n");
      return write_stdout(stats_line(*chat_.last_reply, stdout_width()) + "\n" +
                          chat_.backend.statistics());
    case Slash::Retry:
      return retry();
    case Slash::Undo:
      return undo();
    case Slash::Quit:
      quits_ = true;
      return;
  }
}

void ChatLoop::start_new() {
  const std::string system = chat_.session.system();
  chat_.session = ChatSession();
  chat_.session.name = chat_.store.new_name();
  chat_.session.set_system(system, chat_.backend.model());
  chat_.last_reply.reset();
  write_stdout(fmt::format("a new conversation: {}\n", chat_.session.name));
}

void ChatLoop::load(const std::string& name) {
  if (name.empty()) fail(Errc::BadInput, "/load needs a name; /sessions lists them");
  chat_.session = chat_.store.load(chat_.store.resolve(name));
  chat_.last_reply.reset();
  write_stdout(fmt::format("{}: {} messages\n", chat_.session.name, chat_.session.messages.size()));
  if (chat_.interactive()) show_conversation();
}

void ChatLoop::save_as(const std::string& name) {
  if (!chat_.store.is_on())
    fail(Errc::NotFound, "nothing can be saved: there is no home for it; set XDG_STATE_HOME");
  if (name.empty()) fail(Errc::BadInput, "/save needs a name");
  check_session_name(name);
  if (!chat_.session.last_question()) fail(Errc::BadInput, "there is nothing to save yet");
  if (name != chat_.session.name && chat_.store.has(name))
    fail(Errc::BadInput, "there is a conversation \"{}\" already; take another name", name);
  ChatSession named = chat_.session;
  named.name = name;
  chat_.store.save(named);
  chat_.session = std::move(named);
  write_stdout(fmt::format("saved as {}\n", name));
}

void ChatLoop::change_system(const std::string& text) {
  if (text.empty()) {
    const std::string system = chat_.session.system();
    return write_stdout(system.empty() ? "no system message\n" : safe_text(system) + "\n");
  }
  chat_.session.set_system(text == "\"\"" ? "" : text, chat_.backend.model());
  chat_.store.save(chat_.session);
  write_stdout("the system message is changed\n");
}

void ChatLoop::list_sessions(const std::string& words) const {
  const auto entries = words.empty() ? chat_.store.list() : chat_.store.find(words);
  if (entries.empty() && !words.empty())
    return write_stdout(fmt::format("none in which \"{}\" was said\n", safe_line(words)));
  write_stdout(entries.empty() ? "no conversation is saved yet\n"
                               : session_list(entries, stdout_width()));
}

void ChatLoop::change_model(const std::string& name) {
  const InterruptGuard guard;
  const auto cancelled = [] { return interrupted(); };
  if (name.empty()) {
    std::string text;
    for (const std::string& one : chat_.backend.models(cancelled)) {
      text += fmt::format("{} {}\n", one == chat_.backend.model() ? "*" : " ", safe_line(one));
    }
    if (text.empty()) text = fmt::format("* {}\n", safe_line(chat_.backend.model()));
    return write_stdout(text);
  }
  chat_.backend.use_model(name, cancelled);
  const std::int64_t n = chat_.backend.context_length();
  write_stdout(fmt::format("{}{}\n", safe_line(chat_.backend.model()),
                           n > 0 ? fmt::format(", context {} tokens", n) : ""));
}

void ChatLoop::attach(const std::string& path) {
  if (path.empty()) {
    return write_stdout(chat_.attachments.empty() ? "no file is attached\n"
                                                  : chat_.attachments.list());
  }
  if (path == "-") {
    chat_.attachments.clear();
    return write_stdout("no file is attached any more\n");
  }
  write_stdout(chat_.attachments.add(typed_path(path)) + "\n");
}

void ChatLoop::edit(const std::string& draft) {
  if (!chat_.interactive()) fail(Errc::BadInput, "/edit needs a terminal");
  const std::string text = edit_text(draft, editor_command());
  if (is_blank(text)) return write_stdout("an empty message is not sent\n");
  chat_.lines.remember(text);
  const bool color = chat_.general.color_on_stdout();
  write_stdout(styled(kPrompt, Style::Bold, color) + safe_text(text) + "\n");
  say(text);
}

void ChatLoop::change(const std::string& rest) {
  if (rest.empty())
    return write_stdout(describe_settings(chat_.settings, chat_.backend.defaults()));
  const std::size_t end = std::min(rest.find_first_of(" \t="), rest.size());
  const std::size_t value = std::min(rest.find_first_not_of(" \t=", end), rest.size());
  change_setting(chat_.settings, rest.substr(0, end), rest.substr(value));
}

void ChatLoop::retry() {
  const auto question = chat_.session.last_question();
  if (!question) fail(Errc::BadInput, "there is no question to answer again");
  // An answer that fails must not cost the one there is.
  const ChatSession before = chat_.session;
  chat_.session.cut(*question + 1);
  try {
    answer();
  } catch (...) {
    chat_.session = before;
    throw;
  }
  if (!chat_.session.last_question() || chat_.session.messages.size() <= *question)
    chat_.session = before;
}

void ChatLoop::undo() {
  const auto question = chat_.session.last_question();
  if (!question) fail(Errc::BadInput, "there is nothing to take back");
  const std::string text = text_of(chat_.session.messages[*question]);
  chat_.session.cut(*question);
  chat_.store.save(chat_.session);
  write_stdout(fmt::format("taken back: {}\n", safe_line(text.substr(0, text.find('\n')))));
}

std::string ChatLoop::description() const {
  std::string text = fmt::format("  {:<18}{}\n", "model", safe_line(chat_.backend.model()));
  if (const std::int64_t n = chat_.backend.context_length(); n > 0)
    text += fmt::format("  {:<18}{} tokens\n", "context", n);
  text += fmt::format("  {:<18}{}, {} messages\n", "session", chat_.session.name,
                      chat_.session.messages.size());
  if (const std::string system = chat_.session.system(); !system.empty())
    text += fmt::format("  {:<18}{}\n", "system", safe_line(system));
  if (!chat_.tools.empty())
    text += fmt::format("  {:<18}{}\n", "tools", fmt::join(chat_.tools.names(), ", "));
  return text + describe_settings(chat_.settings, chat_.backend.defaults());
}

void ChatLoop::show_conversation() const {
  const Json& messages = chat_.session.messages;
  std::size_t first = messages.size() - std::min(messages.size(), kShownMessages);
  const bool color = chat_.general.color_on_stdout();
  if (first > 0)
    write_stdout(styled(fmt::format("({} earlier messages)", first), Style::Dim, color) + "\n");
  for (; first < messages.size(); ++first) {
    const Json& message = messages[first];
    if (message["role"] == "user") {
      write_stdout(styled(kPrompt, Style::Bold, color) + safe_text(text_of(message)) + "\n");
    } else if (message["role"] == "assistant" && !text_of(message).empty()) {
      AnswerView view(view_options(chat_), [](std::string_view text) { write_stdout(text); });
      view.text(text_of(message));
      view.finish();
      if (message.contains("stopped"))
        write_stdout(styled("[stopped]", Style::Yellow, color) + "\n");
    }
  }
}

void ChatLoop::report(const std::string& message) {
  had_error_ = true;
  write_stderr(fmt::format("moeflux: {} {}\n",
                           styled("error:", Style::Red, chat_.general.color_on_stderr()), message));
}

}  // namespace moeflux::cli
