#include "cli/terminal/text_input.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory_budget.h"
#include "base/utf8.h"
#include "cli/command_line.h"
#include "cli/terminal/terminal.h"
#include "io/file_set.h"

namespace moeflux::cli {
namespace {

constexpr std::size_t kMaxBytes = 64u << 20;                // far beyond any context
constexpr int kPipePatience = 2000, kSocketPatience = 100;  // milliseconds
constexpr const char* kStandardInput = "standard input";

std::string read_stream(int descriptor, const std::string& origin) {
  std::string text;
  std::vector<char> buffer(65536);
  while (true) {
    const ssize_t n = ::read(descriptor, buffer.data(), buffer.size());
    if (n == 0) return text;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(Errc::Io, "{}: {}", origin, std::generic_category().message(errno));
    text.append(buffer.data(), static_cast<std::size_t>(n));
    if (text.size() > kMaxBytes) {
      fail(Errc::LimitExceeded, "{}: more than {}", origin, format_bytes(kMaxBytes));
    }
  }
}

// What a shell gives for <(command), and /dev/stdin.
bool is_stream(const std::string& path) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  return type == std::filesystem::file_type::fifo || type == std::filesystem::file_type::socket ||
         type == std::filesystem::file_type::character;
}

std::string read_bytes(const std::string& path) {
  if (path == "-") return read_stream(STDIN_FILENO, kStandardInput);
  if (!is_stream(path)) return read_text_file(path, kMaxBytes);
  const Descriptor stream(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (stream.get() < 0)
    fail(Errc::Io, "{}: cannot open: {}", path, std::generic_category().message(errno));
  return read_stream(stream.get(), path);
}

const std::string& origin_of(const std::string& path) {
  static const std::string standard_input = kStandardInput;
  return path == "-" ? standard_input : path;
}

}  // namespace

void check_utf8(const std::string& text, const std::string& origin) {
  const std::size_t at = find_invalid_utf8(text);
  if (at == std::string::npos) return;
  fail(Errc::BadInput,
       "{}: not valid UTF-8 at byte {} (0x{:02x}); convert it, for example with iconv", origin, at,
       static_cast<unsigned char>(text[at]));
}

std::string read_text(const std::string& path) {
  std::string text = read_bytes(path);
  check_utf8(text, origin_of(path));
  if (path == "-" && text.ends_with('\n')) text.pop_back();
  return text;
}

Json read_json(const std::string& path) {
  return parse_json(read_bytes(path), origin_of(path));
}

std::optional<std::string> piped_text(const std::function<void()>& waiting) {
  struct stat info {};
  if (::fstat(STDIN_FILENO, &info) != 0) return std::nullopt;
  if (!S_ISFIFO(info.st_mode) && !S_ISREG(info.st_mode) && !S_ISSOCK(info.st_mode))
    return std::nullopt;
  // Programs that start others often leave a socket open as their input and never write to it; a
  // shell connects programs with pipes.
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const int patience = S_ISSOCK(info.st_mode) ? kSocketPatience : kPipePatience;
  if (!S_ISREG(info.st_mode) && ::poll(&input, 1, patience) == 0) {
    if (S_ISSOCK(info.st_mode)) return std::nullopt;
    waiting();
  }
  std::string text = read_text("-");
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return std::nullopt;
  return text;
}

std::optional<std::string> find_text(const std::vector<std::string>& arguments,
                                     const std::optional<std::string>& file) {
  if (!arguments.empty()) {
    if (file)
      throw UsageError(fmt::format("text given twice: as an argument and with --file {}", *file));
    std::string text;
    for (const std::string& argument : arguments) text += (text.empty() ? "" : " ") + argument;
    check_utf8(text, "the text on the command line");
    return text;
  }
  if (file) return read_text(*file);
  if (!stdin_is_terminal()) return read_text("-");
  return std::nullopt;
}

}  // namespace moeflux::cli
