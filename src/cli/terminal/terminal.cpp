#include "cli/terminal/terminal.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/options/environment.h"

namespace moeflux::cli {
namespace {

bool write_all(int descriptor, std::string_view text) {  // false: errno says why
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

// By Style: bold, dim, red, green, yellow.
constexpr const char* kStyleCodes[] = {"\033[1m", "\033[2m", "\033[1;31m", "\033[32m", "\033[33m"};

constexpr char32_t kReplacement = 0xFFFD;
constexpr char32_t kPictures = 0x2400;  // of the control characters, in their order
constexpr char32_t kPictureOfDelete = 0x2421;

bool turns_writing(char32_t c) {
  return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

char32_t visible(char32_t c) {
  if (c == U'\n' || c == U'\t') return c;
  if (c < 0x20) return kPictures + c;
  if (c == 0x7F) return kPictureOfDelete;
  if ((c >= 0x80 && c < 0xA0) || turns_writing(c)) return kReplacement;
  return c;
}

}  // namespace

bool stdin_is_terminal() {
  return ::isatty(STDIN_FILENO) == 1;
}
bool stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) == 1;
}
bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) == 1;
}

int terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

int stdout_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int text_columns(std::string_view text) {
  int columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    columns += column_width(step.code_point);
    at += step.length;
  }
  return columns;
}

std::string fit_columns(std::string_view text, int columns) {
  if (columns <= 0 || text_columns(text) <= columns) return std::string(text);
  int used = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = decode_utf8(text, at);
    const int width = column_width(step.code_point);
    if (used + width > columns - 1) break;
    used += width;
    at += step.length;
  }
  return std::string(text.substr(0, at)) + "\u2026";
}

std::string padded(std::string_view text, int columns) {
  const int missing = columns - text_columns(text);
  return std::string(text) + std::string(static_cast<std::size_t>(std::max(missing, 0)), ' ');
}

void write_stdout(std::string_view text) {
  if (write_all(STDOUT_FILENO, text)) return;
  const std::string reason = std::generic_category().message(errno);
  fail(Errc::Io, "cannot write to standard output: {}", reason);
}

void write_stderr(std::string_view text) {
  static_cast<void>(write_all(STDERR_FILENO, text));
}

ColorMode parse_color(const std::string& name) {
  if (name == "on") return ColorMode::On;
  return name == "off" ? ColorMode::Off : ColorMode::Auto;
}

bool use_color(ColorMode mode, bool is_terminal) {
  if (mode == ColorMode::Auto) return is_terminal && !environment().no_color.has_value();
  return mode == ColorMode::On;
}

std::string styled(std::string_view text, Style style, bool color) {
  return color ? fmt::format("{}{}\033[0m", kStyleCodes[static_cast<std::size_t>(style)], text)
               : std::string(text);
}

std::string SafeText::convert(bool at_end) {
  std::string out;
  std::size_t at = 0;
  while (at < held_.size()) {
    const Utf8Step step = decode_utf8(held_, at);
    const bool last = at + step.length >= held_.size();
    // More bytes may complete a character, or make "\r" a part of a newline.
    if (!at_end && last && (step.truncated || held_[at] == '\r')) break;
    const bool in_newline = held_[at] == '\r' && !last && held_[at + 1] == '\n';
    if (!in_newline) append_utf8(out, step.valid ? visible(step.code_point) : kReplacement);
    at += step.length;
  }
  held_.erase(0, at);
  return out;
}

std::string SafeText::feed(std::string_view bytes) {
  held_ += bytes;
  return convert(/*at_end=*/false);
}

std::string SafeText::finish() {
  return convert(/*at_end=*/true);
}

std::string safe_text(std::string_view text) {
  SafeText safe;
  std::string out = safe.feed(text);
  return out += safe.finish();
}

std::string safe_line(std::string_view text) {
  std::string out;
  for (const char c : safe_text(text)) {
    if (c == '\n' || c == '\t') {
      append_utf8(out, kPictures + static_cast<char32_t>(c));
    } else {
      out += c;
    }
  }
  return out;
}

int column_width(char32_t code_point) {
  return std::clamp(utf8proc_charwidth(static_cast<utf8proc_int32_t>(code_point)), 0, 2);
}

}  // namespace moeflux::cli
