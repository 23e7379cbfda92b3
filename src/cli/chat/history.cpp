#include "cli/chat/history.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"

namespace moeflux::cli {
namespace {

constexpr std::uint64_t kMaxFile = 64u << 20;

std::string escape(const std::string& entry) {
  std::string line;
  for (const char c : entry) {
    if (c == '\n') {
      line += "\\n";
    } else {
      if (c == '\\') line += '\\';
      line += c;
    }
  }
  return line + "\n";
}

std::string unescape(std::string_view line) {
  std::string entry;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool escaped = line[i] == '\\' && i + 1 < line.size();
    if (escaped) ++i;
    entry += escaped && line[i] == 'n' ? '\n' : line[i];
  }
  return entry;
}

}  // namespace

ChatHistory::ChatHistory(std::string path) : path_(std::move(path)) {
  if (path_.empty() || !file_exists(path_)) return;
  try {
    const std::string text = read_text_file(path_, kMaxFile);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      if (end > at) entries_.push_back(unescape(std::string_view(text).substr(at, end - at)));
      at = end + 1;
    }
    const bool grown = entries_.size() >= 2 * kMaxEntries;
    if (entries_.size() > kMaxEntries)
      entries_.erase(entries_.begin(), entries_.end() - kMaxEntries);
    if (grown) rewrite();
  } catch (const Error&) {
    // Without a history one can chat as well.
  }
}

void ChatHistory::rewrite() const {
  AtomicFile file(path_, FileAccess::Private);
  for (const std::string& entry : entries_) file.write(escape(entry));
  file.commit();
}

bool ChatHistory::add(const std::string& entry) {
  if (entry.find_first_not_of(" \t\n") == std::string::npos || entry[0] == ' ' ||
      entry.size() > kMaxEntryBytes || (!entries_.empty() && entries_.back() == entry)) {
    return false;
  }
  entries_.push_back(entry);
  if (path_.empty()) return true;
  try {
    make_private_parent(path_);
  } catch (const Error&) {
    return true;
  }
  const int file =
      ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return true;
  const std::string line = escape(entry);
  // One write: lines of two programs never mix.
  static_cast<void>(!::write(file, line.data(), line.size()));
  ::close(file);
  return true;
}

}  // namespace moeflux::cli
