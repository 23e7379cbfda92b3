// Shows one reply while it comes: thoughts dim, folded to a counter or not at all, then the answer,
// laid out if that is wanted. Ends with a newline if anything was shown.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cli/chat/backend.h"
#include "cli/chat/markdown.h"
#include "cli/chat/settings.h"

namespace moeflux::cli {

struct ViewOptions {
  ThinkView think = ThinkView::Fold;
  bool markdown = true;  // with colour only
  bool color = false;
  bool live = false;  // lines may be drawn again, as on a terminal
  int width = 0;      // columns; 0: lines are not broken
};

class AnswerView {
 public:
  using Sink = std::function<void(std::string_view)>;
  AnswerView(const ViewOptions& options, Sink sink);

  void reading(std::int64_t n_new, std::int64_t n_cached);
  void thought(std::string_view text);
  void text(std::string_view text);
  void call(const std::string& name);  // the model is writing one
  void finish();
  bool has_text() const { return has_text_; }

 private:
  using Clock = std::chrono::steady_clock;

  void status(const std::string& line);  // in place of the last one; empty: none
  void end_thought();
  void show(const std::string& text);

  ViewOptions options_;
  Sink sink_;
  bool has_status_ = false, has_text_ = false, at_line_start_ = true;
  // Of the thought.
  std::optional<Clock::time_point> thought_since_;
  Clock::time_point last_count_{};
  std::int64_t n_words_ = 0;
  bool in_word_ = false;
  SafeText safe_;
  TextWriter thought_writer_;
  MarkdownRenderer markdown_;
};

// "42 tokens, 8.1 per second, first after 0.35 s, ...", for after an answer;
// broken between its parts where `width` columns (0: any number) are too few.
std::string stats_line(const ChatReply& reply, int width = 0);

}  // namespace moeflux::cli
