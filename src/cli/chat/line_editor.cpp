#include "cli/chat/line_editor.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

constexpr std::uint64_t kMaxHistoryFile = 64u << 20;

std::string escape(const std::string& entry) {
  std::string line;
  for (const char c : entry) {
    if (c == '\n') {
      line += "\\n";
    } else {
      if (c == '\\') line += '\\';
      line += c;
    }
  }
  return line + "\n";
}

std::string unescape(std::string_view line) {
  std::string entry;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool escaped = line[i] == '\\' && i + 1 < line.size();
    if (escaped) ++i;
    entry += escaped && line[i] == 'n' ? '\n' : line[i];
  }
  return entry;
}

constexpr const char* kPasteOn = "\033[?2004h";
constexpr const char* kPasteOff = "\033[?2004l";
constexpr const char* kLastWords = "\033[0m\033[?2004l";  // an answer may stop within bold text
constexpr const char* kPasteBegin = "\033[200~";
constexpr std::string_view kPasteEnd = "\033[201~";
constexpr char kPromptEscape = '\001';
// A paste comes in pieces: it is over when nothing has come for this long.
constexpr int kQuietMs = 100;
constexpr int kMaxPieces = 50;

// Set by signals while a line is read.
std::atomic<int> ending_signal{0};
std::atomic<bool> resized{false};

void on_signal(int number) {
  if (number == SIGWINCH) {
    resized = true;
  } else {
    ending_signal = number;
  }
}

// Signals end the reading of a line, not the program with the terminal in a state of its own.
class SignalGuard {
 public:
  SignalGuard() {
    ending_signal = 0;
    struct sigaction action {};
    action.sa_handler = on_signal;  // without SA_RESTART: reading must return
    ::sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      ::sigaction(kSignals[i], &action, &before_[i]);
  }
  ~SignalGuard() {
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGWINCH};
  std::array<struct sigaction, kSignals.size()> before_{};
};

// libedit speaks the characters of the locale; text here is always UTF-8.
void use_utf8() {
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread of the program asks for the locale
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(::nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
  // NOLINTEND(concurrency-mt-unsafe)
}

}  // namespace

ChatHistory::ChatHistory(std::string path) : path_(std::move(path)) {
  if (path_.empty() || !file_exists(path_)) return;
  try {
    const std::string text = read_text_file(path_, kMaxHistoryFile);
    for (const std::string& line : split(text, '\n')) {
      if (!line.empty()) entries_.push_back(unescape(line));
    }
    const bool grown = entries_.size() >= 2 * kMaxEntries;
    if (entries_.size() > kMaxEntries)
      entries_.erase(entries_.begin(), entries_.end() - kMaxEntries);
    if (grown) rewrite();
  } catch (const Error&) {
    // Without a history one can chat as well.
  }
}

void ChatHistory::rewrite() const {
  AtomicFile file(path_, FileAccess::Private);
  for (const std::string& entry : entries_) file.write(escape(entry));
  file.commit();
}

bool ChatHistory::add(const std::string& entry) {
  if (entry.find_first_not_of(" \t\n") == std::string::npos || entry[0] == ' ' ||
      entry.size() > kMaxEntryBytes || (!entries_.empty() && entries_.back() == entry)) {
    return false;
  }
  entries_.push_back(entry);
  if (path_.empty()) return true;
  try {
    make_private_parent(path_);
  } catch (const Error&) {
    return true;
  }
  const int file =
      ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return true;
  const std::string line = escape(entry);
  // One write: lines of two programs never mix.
  static_cast<void>(!::write(file, line.data(), line.size()));
  ::close(file);
  return true;
}

struct LineEditor::State {
  EditLine* editor = nullptr;
  ::History* history = nullptr;
  ChatHistory* kept = nullptr;
  std::vector<std::string> completions;
  bool color = false;
  std::string prompt;
  std::string queue;  // bytes to be read before those of the terminal
  bool interrupted = false;

  static State& of(EditLine* editor) {
    void* data = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &data);
    return *static_cast<State*>(data);
  }

  int next_byte();  // -1: the input has ended, or a signal came
  int next_character(wchar_t* out);
  void insert(const std::string& text) const;
  void enter(const std::string& text) const;

  // For libedit, which calls them by pointer.
  static int get_character(EditLine* editor, wchar_t* out) {
    return of(editor).next_character(out);
  }
  static char* get_prompt(EditLine* editor) { return of(editor).prompt.data(); }
  static unsigned char interrupt(EditLine* editor, int key);
  static unsigned char suspend(EditLine* editor, int key);
  static unsigned char paste(EditLine* editor, int key);
  static unsigned char complete(EditLine* editor, int key);
};

int LineEditor::State::next_byte() {
  if (!queue.empty()) {
    const auto byte = static_cast<unsigned char>(queue[0]);
    queue.erase(0, 1);
    return byte;
  }
  while (true) {
    if (ending_signal == SIGINT) {
      ending_signal = 0;
      return 3;  // Ctrl-C
    }
    if (ending_signal != 0) return -1;
    if (resized.exchange(false)) ::el_resize(editor);
    pollfd input{STDIN_FILENO, POLLIN, 0};
    // A signal between the check above and this call would be seen only at the next key.
    if (::poll(&input, 1, 250) <= 0) continue;
    unsigned char byte = 0;
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    if (n == 1) return byte;
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    return -1;
  }
}

int LineEditor::State::next_character(wchar_t* out) {
  std::string bytes;
  while (true) {
    const int byte = next_byte();
    if (byte < 0) return 0;
    bytes += static_cast<char>(byte);
    const Utf8Step step = decode_utf8(bytes, 0);
    if (!step.valid && step.truncated) continue;
    // What follows ill-formed bytes is read anew.
    queue.insert(0, bytes.substr(step.length));
    *out = static_cast<wchar_t>(step.valid ? step.code_point : U'\uFFFD');
    return 1;
  }
}

void LineEditor::State::insert(const std::string& text) const {
  if (!text.empty()) ::el_insertstr(editor, text.c_str());
}

void LineEditor::State::enter(const std::string& text) const {
  HistEvent event;
  ::history(history, &event, H_ENTER, text.c_str());
}

unsigned char LineEditor::State::interrupt(EditLine* editor, int /*key*/) {
  of(editor).interrupted = true;
  const LineInfo* line = ::el_line(editor);
  ::el_cursor(editor, static_cast<int>(line->lastchar - line->cursor));  // stops at the end
  ::el_set(editor, EL_REFRESH);
  return CC_NEWLINE;
}

unsigned char LineEditor::State::suspend(EditLine* editor, int /*key*/) {
  write_stdout(kPasteOff);
  ::el_set(editor, EL_PREP_TERM, 0);
  ::raise(SIGTSTP);
  ::el_set(editor, EL_PREP_TERM, 1);
  write_stdout(kPasteOn);
  return CC_REDISPLAY;
}

unsigned char LineEditor::State::paste(EditLine* editor, int /*key*/) {
  State& state = of(editor);
  std::string text;
  for (int byte = 0; (byte = state.next_byte()) >= 0;) {
    text += static_cast<char>(byte == '\r' ? '\n' : byte);
    if (text.size() > InputAssembler::kMaxBytes) break;
    if (text.size() >= kPasteEnd.size() &&
        text.compare(text.size() - kPasteEnd.size(), kPasteEnd.size(), kPasteEnd) == 0) {
      text.resize(text.size() - kPasteEnd.size());
      break;
    }
  }
  std::string clean;  // what the keyboard cannot type has no business in a line
  for (const char c : replace_invalid_utf8(text))
    if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') clean += c;
  state.insert(clean);
  return CC_REFRESH;
}

unsigned char LineEditor::State::complete(EditLine* editor, int /*key*/) {
  const State& state = of(editor);
  const LineInfo* line = ::el_line(editor);
  const std::string word(line->buffer, line->cursor);
  std::string common;
  int n = 0;
  for (const std::string& candidate : state.completions) {
    if (word.empty() || candidate.compare(0, word.size(), word) != 0) continue;
    if (n++ == 0) common = candidate + " ";
    std::size_t same = 0;
    while (same < common.size() && same < candidate.size() && common[same] == candidate[same])
      ++same;
    if (n > 1) common.resize(same);
  }
  if (common.size() <= word.size()) return CC_REFRESH_BEEP;
  state.insert(common.substr(word.size()));
  return CC_REFRESH;
}

LineEditor::LineEditor(ChatHistory& history, std::vector<std::string> completions, bool color)
    : state_(std::make_unique<State>()) {
  use_utf8();
  State& state = *state_;
  state.kept = &history;
  state.completions = std::move(completions);
  state.color = color;
  state.editor = ::el_init("moeflux", stdin, stdout, stderr);
  state.history = ::history_init();
  if (state.editor == nullptr || state.history == nullptr)
    fail(Errc::Io, "the terminal cannot be used for editing lines");
  HistEvent event;
  ::history(state.history, &event, H_SETSIZE, static_cast<int>(ChatHistory::kMaxEntries));
  for (const std::string& entry : history.entries()) state.enter(entry);

  EditLine* editor = state.editor;
  ::el_set(editor, EL_CLIENTDATA, state_.get());
  ::el_set(editor, EL_PROMPT_ESC, &State::get_prompt, kPromptEscape);
  ::el_set(editor, EL_GETCFN, &State::get_character);
  ::el_set(editor, EL_HIST, &::history, state.history);
  ::el_set(editor, EL_SIGNAL, 0);
  ::el_set(editor, EL_EDITOR, "emacs");
  ::el_set(editor, EL_ADDFN, "chat-interrupt", "clears the line", &State::interrupt);
  ::el_set(editor, EL_ADDFN, "chat-suspend", "stops the program", &State::suspend);
  ::el_set(editor, EL_ADDFN, "chat-paste", "takes a paste", &State::paste);
  ::el_set(editor, EL_ADDFN, "chat-complete", "completes a command", &State::complete);
  ::el_source(editor, nullptr);  // the user's own settings; ours follow
  ::el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
  ::el_set(editor, EL_BIND, "^C", "chat-interrupt", nullptr);
  ::el_set(editor, EL_BIND, "^Z", "chat-suspend", nullptr);
  ::el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  ::el_set(editor, EL_BIND, "^I", "chat-complete", nullptr);
  ::el_set(editor, EL_BIND, kPasteBegin, "chat-paste", nullptr);
}

LineEditor::~LineEditor() {
  set_last_words(nullptr);
  if (can_redraw()) static_cast<void>(!::write(STDOUT_FILENO, kPasteOff, std::strlen(kPasteOff)));
  ::el_end(state_->editor);
  ::history_end(state_->history);
}

void LineEditor::discard_pending() {
  state_->queue.clear();
  pollfd input{STDIN_FILENO, POLLIN, 0};
  for (int i = 0; i < kMaxPieces; ++i) {
    ::tcflush(STDIN_FILENO, TCIFLUSH);
    if (::poll(&input, 1, kQuietMs) <= 0) break;
  }
  ::tcflush(STDIN_FILENO, TCIFLUSH);  // poll does not see a line without its end
}

void LineEditor::remember(const std::string& text) {
  if (state_->kept->add(text)) state_->enter(text);
}

bool LineEditor::can_redraw() const {
  const char* terminal = nullptr;
  return ::el_get(state_->editor, EL_TERMINAL, &terminal) == 0 && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

InputLine LineEditor::read(const std::string& prompt, const std::string& initial) {
  State& state = *state_;
  const SignalGuard signals;
  state.interrupted = false;
  state.queue.clear();
  if (!initial.empty()) state.queue = kPasteBegin + initial + std::string(kPasteEnd);
  state.prompt =
      state.color ? fmt::format("{0}\033[1m{0}{1}{0}\033[0m{0}", kPromptEscape, prompt) : prompt;
  if (can_redraw()) {
    write_stdout(kPasteOn);  // and it stays on while the model answers
    set_last_words(kLastWords);
  }
  int length = 0;
  const char* line = ::el_gets(state.editor, &length);
  if (state.interrupted) {
    write_stdout("^C\n");
    return {InputEnd::Interrupt, ""};
  }
  if (line == nullptr || length <= 0) return {InputEnd::EndOfInput, ""};
  std::string text(line, static_cast<std::size_t>(length));
  if (text.back() == '\n') text.pop_back();
  return {InputEnd::Line, std::move(text)};
}

}  // namespace moeflux::cli
