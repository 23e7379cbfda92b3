// Text from a model, a tool or a file as a terminal may see it. Escape sequences, other control
// characters and marks that reverse the direction of writing become visible characters, so that
// nobody who writes the text can move the cursor, change the terminal or make a command look like
// another one. What is not UTF-8 becomes U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace moeflux::cli {

// For text that comes in pieces, which may end within a character.
class SafeText {
 public:
  std::string feed(std::string_view bytes);
  std::string finish();  // what was held back

 private:
  std::string convert(bool at_end);
  std::string held_;
};

// Newlines and tabs stay; "\r\n" is one newline.
std::string safe_text(std::string_view text);
// Also newlines and tabs become visible: for names and other things of one line.
std::string safe_line(std::string_view text);

// Columns that a character takes on a terminal: 0, 1 or 2.
int column_width(char32_t code_point);

}  // namespace moeflux::cli
