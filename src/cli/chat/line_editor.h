// Lines typed on a terminal, edited with libedit: cursor keys, history, search, the user's .editrc.
// The only user of libedit is chat_line_editor.cpp.
//
// Text that is pasted goes into the line as it is, newlines too, and waits for Enter; what is
// pasted while no line is read goes into the next one. Ctrl-C and Ctrl-Z are handled here while a
// line is read: the terminal sends them as characters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/chat/history.h"
#include "cli/chat/input.h"

namespace moeflux::cli {

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
