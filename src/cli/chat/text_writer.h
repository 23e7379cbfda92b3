// Styled text laid out for a terminal: words that do not fit move to the next line, which begins
// with the indentation of its paragraph. Output depends only on the characters that were put, not
// on when it was taken.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moeflux::cli {

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

  bool at_line_start() const { return column_ == 0 && word_.empty(); }
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

}  // namespace moeflux::cli
