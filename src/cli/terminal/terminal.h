// What the program writes and where: answers and results to standard output, everything else to
// standard error.
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

}  // namespace moeflux::cli
