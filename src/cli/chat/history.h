// Lines that were typed, kept from one chat to the next: a file with one entry a line, newlines and
// backslashes escaped, for its owner only. Every entry is appended at once, so that chats running
// at the same time share it and a killed one loses nothing.
#pragma once

#include <string>
#include <vector>

namespace moeflux::cli {

class ChatHistory {
 public:
  static constexpr std::size_t kMaxEntries = 1000;
  static constexpr std::size_t kMaxEntryBytes = 16384;

  // Reads what is there, the last kMaxEntries of it, and makes a file that has grown to twice of
  // that short again. Empty path: nothing is kept. A file that cannot be read counts as empty.
  explicit ChatHistory(std::string path);

  const std::vector<std::string>& entries() const { return entries_; }  // oldest first

  // Nothing happens to blank lines, to those that begin with a space, to the same line again, and
  // to very long ones.
  bool add(const std::string& entry);

 private:
  void rewrite() const;

  std::string path_;
  std::vector<std::string> entries_;
};

}  // namespace moeflux::cli
