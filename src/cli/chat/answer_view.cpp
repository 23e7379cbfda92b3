#include "cli/chat/answer_view.h"

#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kClearLine = "\r\033[K";
constexpr std::chrono::milliseconds kCountEvery{100};

double per(double value, double n) {
  return n > 0 ? value / n : 0;
}

}  // namespace

AnswerView::AnswerView(const ViewOptions& options, Sink sink)
    : options_(options),
      sink_(std::move(sink)),
      thought_writer_(options.color ? options.width : 0),
      markdown_(options.width) {}

void AnswerView::status(const std::string& line) {
  if (!options_.live) return;
  if (!has_status_ && line.empty()) return;
  // A line that wraps could not be taken back; the last column is left free, where terminals
  // differ.
  const std::string fitting = fit_columns(line, options_.width > 1 ? options_.width - 1 : 0);
  sink_(std::string(kClearLine) + styled(fitting, Style::Dim, options_.color && !line.empty()));
  has_status_ = !line.empty();
}

void AnswerView::show(const std::string& text) {
  if (text.empty()) return;
  status("");
  sink_(text);
  at_line_start_ = text.back() == '\n';
}

void AnswerView::reading(std::int64_t n_new, std::int64_t n_cached) {
  status(n_cached > 0 ? fmt::format("reading {} tokens, {} are known", n_new, n_cached)
                      : fmt::format("reading {} tokens", n_new));
}

void AnswerView::thought(std::string_view text) {
  const Clock::time_point now = Clock::now();
  if (!thought_since_) thought_since_ = now;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\n' || c == '\t';
    if (!blank && !in_word_) ++n_words_;
    in_word_ = !blank;
  }
  if (options_.think == ThinkView::Show) {
    const std::string safe = safe_.feed(text);
    for (std::size_t at = 0; at < safe.size();) {
      const std::size_t end = safe.find('\n', at);
      thought_writer_.put_all(std::string_view(safe).substr(at, end - at), {.dim = options_.color});
      if (end == std::string::npos) break;
      thought_writer_.newline();
      at = end + 1;
    }
    show(thought_writer_.take());
  } else if (options_.think == ThinkView::Fold && now - last_count_ >= kCountEvery) {
    last_count_ = now;
    const double seconds = std::chrono::duration<double>(now - *thought_since_).count();
    status(fmt::format("thinking: {} words, {:.0f} s", n_words_, seconds));
  }
}

void AnswerView::end_thought() {
  if (!thought_since_) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - *thought_since_).count();
  thought_since_.reset();
  if (options_.think == ThinkView::Show) {
    thought_writer_.put_all(safe_.finish(), {.dim = options_.color});
    thought_writer_.flush();
    show(thought_writer_.take());
    if (!at_line_start_) show("\n");
    if (n_words_ > 0) show("\n");
  } else if (options_.think == ThinkView::Fold && options_.live && n_words_ > 0) {
    const std::string line = fmt::format("thought: {} words, {:.1f} s", n_words_, seconds);
    show(styled(line, Style::Dim, options_.color) + "\n");
  }
}

void AnswerView::text(std::string_view text) {
  if (text.empty()) return;
  end_thought();
  has_text_ = true;
  show(options_.markdown && options_.color ? markdown_.feed(text) : safe_.feed(text));
}

void AnswerView::call(const std::string& name) {
  end_thought();
  status(fmt::format("writing a call of {}", safe_line(name)));
}

void AnswerView::finish() {
  end_thought();
  show(options_.markdown && options_.color ? markdown_.finish() : safe_.finish());
  status("");
  if (!at_line_start_) show("\n");
}

std::string stats_line(const ChatReply& reply, int width) {
  std::vector<std::string> parts;  // only what is known
  if (reply.n_answer > 0) parts.push_back(fmt::format("{} tokens", reply.n_answer));
  if (reply.n_answer > 0 && reply.answer_seconds > 0)
    parts.push_back(fmt::format("{:.1f} tok/s",
                                per(static_cast<double>(reply.n_answer), reply.answer_seconds)));
  if (reply.first_token_seconds > 0)
    parts.push_back(fmt::format("first after {:.2f} s", reply.first_token_seconds));
  if (reply.n_prompt > 0)
    parts.push_back(fmt::format("prompt {} with {} cached", reply.n_prompt, reply.n_cached));
  if (const std::uint64_t all = reply.hits + reply.misses; all > 0)
    parts.push_back(
        fmt::format("experts {:.1f} % from memory",
                    100 * per(static_cast<double>(reply.hits), static_cast<double>(all))));
  if (parts.empty()) return "nothing is known of this answer";
  std::string text;
  int column = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int needed = text_columns(parts[i]) + 1;  // and a comma
    const bool breaks = width > 0 && column > 0 && column + 1 + needed > width;
    if (i > 0) text += breaks ? ",\n" : ", ";
    column = (i == 0 || breaks ? 0 : column + 1) + needed;
    text += parts[i];
  }
  return text;
}

}  // namespace moeflux::cli
