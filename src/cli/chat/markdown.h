// Markdown as a model writes it, shown on a terminal while it arrives: headings, emphasis, code,
// lists, quotes. Tables and everything else stay as they are, and a line of the source is a line of
// the output.
//
// A marker counts only when its partner follows soon on the same line, so text is held back from
// the marker on, but never more than kMaxHeld bytes of it: after that a long bold or code span is
// taken on trust, and anything else is an ordinary character. What is shown depends only on the
// text, never on the pieces it came in.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/terminal/terminal.h"

namespace moeflux::cli {

// Styled text laid out for a terminal: words that do not fit move to the next line, which begins
// with the indentation of its paragraph. Output depends only on the characters that were put, not
// on when it was taken.
struct TextStyle {
  bool bold = false, italic = false, underlined = false, dim = false, code = false;
  friend bool operator==(const TextStyle&, const TextStyle&) = default;
};

class TextWriter {
 public:
  explicit TextWriter(int width) : width_(width) {}  // in columns; 0: lines are never broken

  void put(std::string_view character, const TextStyle& style);  // one, in UTF-8
  void put_all(std::string_view text, const TextStyle& style);
  void newline();
  void flush();  // a word that may not be complete, and the style is plain again

  // Until the end of the line: characters as they come, lines as long as they are.
  void as_it_is() { breaks_ = false; }
  // What lines begin with that continue this one.
  void continue_with(std::string prefix, const TextStyle& style);

  std::string take() { return std::exchange(out_, {}); }

 private:
  void emit(std::string_view text, const TextStyle& style);
  void end_word();
  void break_line();

  int width_;
  bool breaks_ = true;
  std::string prefix_;
  TextStyle prefix_style_, current_;
  int prefix_width_ = 0, column_ = 0, n_spaces_ = 0, word_width_ = 0;
  std::vector<std::pair<TextStyle, std::string>> word_;
  std::string out_;
};

// How often the character at `at` stands there in a row.
inline std::size_t run_length(std::string_view text, std::size_t at) {
  const std::size_t end = text.find_first_not_of(text[at], at);
  return (end == std::string_view::npos ? text.size() : end) - at;
}

class MarkdownRenderer {
 public:
  static constexpr std::size_t kMaxHeld = 96;

  explicit MarkdownRenderer(int width) : writer_(width), width_(width) {}

  // Any bytes; they are made safe first. Returns what can be shown now.
  std::string feed(std::string_view text);
  std::string finish();  // the rest; ready for another text after that

 private:
  // What a step may look at: the current line as far as it is known.
  struct View {
    std::string_view line;  // without its newline, at most kMaxHeld bytes
    bool ends = false;      // the line ends here
    bool complete = false;  // waiting for more changes nothing
  };
  View view() const;
  void process();
  bool begin_line();  // false: more text is needed to decide
  bool in_fence(const View& view);
  bool open_fence(const View& view, std::size_t indent);
  bool rule(const View& view, std::size_t indent);
  std::size_t list_marker(std::string_view line) const;
  void begin_paragraph(std::string_view line, std::size_t indent, std::size_t marker);
  bool step();  // one character or span within a line
  void end_line();
  void consume_line(const View& view);

  // Inline markup. Each returns how many bytes of `view` it has shown;
  // 0: it must wait.
  std::size_t inline_step(const View& view, const TextStyle& style);
  std::size_t code_span(const View& view, const TextStyle& style);
  std::size_t rest_of_code(const View& view);
  std::size_t emphasis(const View& view, const TextStyle& style);
  std::size_t literal(std::string_view text, std::size_t length, const TextStyle& style);
  void show_all(std::string_view text, const TextStyle& style);

  enum class Line { Start, Text, AsIs };

  SafeText safe_;
  TextWriter writer_;
  int width_;
  std::string pending_;
  bool finishing_ = false;
  Line line_ = Line::Start;
  TextStyle line_style_;
  char fence_ = 0;  // the character of an open one
  std::size_t fence_length_ = 0;
  // Spans whose end was not in sight.
  bool bold_open_ = false;
  std::size_t code_open_ = 0;  // backquotes
  char previous_ = ' ';        // the last character shown; ' ' at the start of a line
};

}  // namespace moeflux::cli
