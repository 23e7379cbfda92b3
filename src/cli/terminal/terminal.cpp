#include "cli/terminal/terminal.h"

#include <cerrno>
#include <cstring>
#include <system_error>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/error.h"
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

const char* escape_code(Style style) {
  switch (style) {
    case Style::Bold:
      return "\033[1m";
    case Style::Dim:
      return "\033[2m";
    case Style::Red:
      return "\033[1;31m";
    case Style::Green:
      return "\033[32m";
    case Style::Yellow:
      return "\033[33m";
  }
  return "";
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
  return color ? fmt::format("{}{}\033[0m", escape_code(style), text) : std::string(text);
}

}  // namespace moeflux::cli
