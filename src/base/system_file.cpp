#include "base/system_file.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

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

constexpr std::size_t kMaxDepth = 64;

bool lists(std::string_view comma_separated, std::string_view name) {
  while (!comma_separated.empty()) {
    const std::size_t comma = std::min(comma_separated.find(','), comma_separated.size());
    if (comma_separated.substr(0, comma) == name) return true;
    comma_separated.remove_prefix(std::min(comma + 1, comma_separated.size()));
  }
  return false;
}

// mountinfo writes a space as \040.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto is_octal = [&](std::size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '7';
    };
    if (text[i] == '\\' && is_octal(i + 1) && is_octal(i + 2) && is_octal(i + 3)) {
      const int code = (text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0');
      plain += static_cast<char>(code & 0xFF);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// The path of our group inside its hierarchy, as our cgroup namespace sees it.
struct Membership {
  int version = 0;
  std::string path;
};

Membership find_membership(std::string_view controller, const std::string& text) {
  Membership found;
  for (const std::string_view line : split_lines(text)) {  // "4:memory,cpu:/path"
    const std::size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (lists(controllers, controller)) return {1, path};
    if (controllers.empty() && line.substr(0, first) == "0") found = {2, path};
  }
  return found;
}

struct Mount {
  std::string root;   // which group of the hierarchy is mounted
  std::string point;  // where
};

// "31 23 0:28 /root /point rw,relatime shared:1 - cgroup2 cgroup2 rw"
std::optional<Mount> parse_mount(std::string_view line, int version, std::string_view controller) {
  const std::vector<std::string_view> words = split_words(line);
  const auto dash = std::find(words.begin(), words.end(), "-");
  if (dash - words.begin() < 6 || words.end() - dash < 4) return std::nullopt;
  const bool matches =
      version == 2 ? dash[1] == "cgroup2" : dash[1] == "cgroup" && lists(words.back(), controller);
  if (!matches) return std::nullopt;
  return Mount{unescaped(words[3]), unescaped(words[4])};
}

// `path` seen from `ancestor`: "" when they are the same, nothing when it does not lie below.
std::optional<std::string> relative_to(const std::string& path, const std::string& ancestor) {
  if (ancestor == "/") return path == "/" ? "" : path;
  if (path.compare(0, ancestor.size(), ancestor) != 0) return std::nullopt;
  const std::string rest = path.substr(ancestor.size());
  return rest.empty() || rest[0] == '/' ? std::optional(rest) : std::nullopt;
}

// The group below a mount point. A container may see the path that the host has for its group,
// but only the lower end of it mounted: leading parts that are not there are left out.
std::string locate(const std::string& point, const Mount& mount, const std::string& path) {
  // Outside of what our namespace shows, or no path that a kernel writes.
  if (path.find("/..") != std::string::npos || path.find("//") != std::string::npos) return "";
  std::string below = relative_to(path, mount.root).value_or(path);
  for (std::size_t depth = 0; depth < kMaxDepth && !below.empty() && below != "/"; ++depth) {
    if (below[0] == '/' && directory_exists(point + below)) return below;
    const std::size_t slash = below.find('/', 1);
    below = slash == std::string::npos ? "" : below.substr(slash);
  }
  return "";
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
  return to_number<std::uint64_t>(trimmed(text));
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

Cgroup find_cgroup(std::string_view controller, const std::string& root) {
  const auto groups = read_system_file(under_root(root, "/proc/self/cgroup"));
  const auto mounts = read_system_file(under_root(root, "/proc/self/mountinfo"));
  if (!groups || !mounts) return {};
  const Membership membership = find_membership(controller, *groups);
  if (membership.version == 0) return {};

  // Of several mounts of one hierarchy the one that shows the deepest group is ours.
  std::optional<std::string> top, below;
  for (const std::string_view line : split_lines(*mounts)) {
    const auto mount = parse_mount(line, membership.version, controller);
    if (!mount) continue;
    const std::string point = under_root(root, mount->point);
    if (!directory_exists(point)) continue;
    std::string place = locate(point, *mount, membership.path);
    if (top && place.size() <= below->size()) continue;
    top = point;
    below = std::move(place);
  }
  if (!top) return {};

  Cgroup cgroup{.version = membership.version, .directories = {}};
  while (!below->empty() && cgroup.directories.size() < kMaxDepth) {
    cgroup.directories.push_back(*top + *below);
    below->resize(below->rfind('/'));
  }
  cgroup.directories.push_back(*top);
  return cgroup;
}

}  // namespace moeflux
