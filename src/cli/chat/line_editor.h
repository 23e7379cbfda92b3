// Lines typed on a terminal, edited with libedit: cursor keys, history, search, the user's .editrc.
// The only user of libedit is line_editor.cpp.
//
// Text that is pasted goes into the line as it is, newlines too, and waits for Enter; what is
// pasted while no line is read goes into the next one. Ctrl-C and Ctrl-Z are handled here while a
// line is read: the terminal sends them as characters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/chat/input.h"

namespace moeflux::cli {

// Lines that were typed, kept from one chat to the next: a file with one entry a line, newlines and
// backslashes escaped, for its owner only. Every entry is appended at once, so that chats running
// at the same time share it and a killed one loses nothing.
class ChatHistory {
 public:
  static constexpr std::size_t kMaxEntries = 1000;
  static constexpr std::size_t kMaxEntryBytes = 16384;

  // Reads what is there, the last kMaxEntries of it, and makes a file that has grown to twice of
  // that short again. Empty path: nothing is kept. A file that cannot be read counts as empty.
  explicit ChatHistory(std::string path);

  const std::vector<std::string>& entries() const { return entries_; }  // oldest first

  // Nothing happens to blank lines, to those that begin with a space, to the same line again, and
  // to very long ones.
  bool add(const std::string& entry);

 private:
  void rewrite() const;

  std::string path_;
  std::vector<std::string> entries_;
};

class LineEditor : public LineSource {
 public:
  // `completions`: words that Tab completes at the start of a line.
  LineEditor(ChatHistory& history, std::vector<std::string> completions, bool color);
  ~LineEditor() override;

  InputLine read(const std::string& prompt, const std::string& initial) override;
  void discard_pending() override;
  void remember(const std::string& text) override;
  bool is_interactive() const override { return true; }
  bool can_redraw() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moeflux::cli
