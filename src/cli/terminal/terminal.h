// What the program writes and where: answers and results to standard output, everything else to
// standard error, and text of others only after it was made harmless.
#pragma once

#include <string>
#include <string_view>

namespace moeflux::cli {

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();
int terminal_width();  // of standard error; 80 when it is not known

// Writes and flushes all of it. Throws Error(Io) when that fails, such as on a full disk.
void write_stdout(std::string_view text);
// One that cannot be written is lost: there is nowhere left to say so.
void write_stderr(std::string_view text);

enum class ColorMode { Auto, On, Off };
ColorMode parse_color(const std::string& name);  // auto, on, off

// Whether escape sequences may be written to a stream that is or is not a terminal. NO_COLOR counts
// for Auto.
bool use_color(ColorMode mode, bool is_terminal);

// `text` in the given style, or as it is.
enum class Style { Bold, Dim, Red, Green, Yellow };
std::string styled(std::string_view text, Style style, bool color);

// Text from a model, a tool or a file as a terminal may see it. Escape sequences, other control
// characters and marks that reverse the direction of writing become visible characters, so that
// nobody who writes the text can move the cursor, change the terminal or make a command look like
// another one. What is not UTF-8 becomes U+FFFD.
//
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

int stdout_width();                       // columns; 0 when it is no terminal
int text_columns(std::string_view text);  // of valid UTF-8 without control characters
// What of the text fits into so many columns, with an ellipsis where it was cut. 0: all of it.
std::string fit_columns(std::string_view text, int columns);
// Followed by spaces up to so many columns.
std::string padded(std::string_view text, int columns);

// Columns that a character takes on a terminal: 0, 1 or 2.
int column_width(char32_t code_point);

}  // namespace moeflux::cli
