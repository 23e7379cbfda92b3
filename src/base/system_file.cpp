#include "base/system_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>

#include <fcntl.h>
#include <unistd.h>

namespace moeflux {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t begin = text.find_first_not_of(separators);
    if (begin == std::string_view::npos) return parts;
    text.remove_prefix(begin);
    const std::size_t end = std::min(text.find_first_of(separators), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

}  // namespace

std::optional<std::string> read_system_file(const std::string& path, std::size_t max_bytes) {
  // O_NONBLOCK: what is a FIFO in the place of a file must not hang us.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  constexpr std::size_t kStep = 4096;
  std::string text;
  while (text.size() < max_bytes) {
    const std::size_t before = text.size();
    const std::size_t want = std::min(std::max(kStep, before), max_bytes - before);
    text.resize(before + want);
    const ssize_t n = ::read(fd, text.data() + before, want);
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      ::close(fd);
      return std::nullopt;
    }
    if (n == 0) break;
  }
  ::close(fd);
  return text;
}

std::optional<std::uint64_t> read_system_number(const std::string& path) {
  const auto text = read_system_file(path, 256);
  return text ? parse_number(*text) : std::nullopt;
}

std::string read_system_line(const std::string& path) {
  const auto text = read_system_file(path, 4096);
  return text ? std::string(trimmed(text->substr(0, text->find('\n')))) : "";
}

std::string under_root(const std::string& root, std::string_view path) {
  std::string all = root;
  while (!all.empty() && all.back() == '/') all.pop_back();
  return all.append(path);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::vector<std::string_view> split_lines(std::string_view text) {
  return split(text, "\n");
}
std::vector<std::string_view> split_words(std::string_view text) {
  return split(text, kSpace);
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  text = trimmed(text);
  std::uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> find_number(std::string_view text, std::string_view key) {
  for (const std::string_view line : split_lines(text)) {
    if (line.substr(0, key.size()) != key) continue;
    std::string_view rest = line.substr(key.size());
    if (!rest.empty() && rest.front() == ':') rest.remove_prefix(1);
    if (rest.empty() || kSpace.find(rest.front()) == std::string_view::npos) continue;
    const std::vector<std::string_view> words = split_words(rest);
    if (words.empty()) continue;
    const auto value = parse_number(words[0]);
    if (!value || words.size() < 2 || words[1] != "kB") return value;
    return *value > UINT64_MAX / 1024 ? std::nullopt : std::optional(*value * 1024);
  }
  return std::nullopt;
}

}  // namespace moeflux
