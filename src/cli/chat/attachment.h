// Text files that go with the next message of a chat.
#pragma once

#include <string>
#include <vector>

namespace moeflux::cli {

class ChatAttachments {
 public:
  static constexpr std::size_t kMaxBytes = 1 << 20;  // of all files together

  // Throws Error for a file that is missing, no text or too large. Returns what to say of it.
  std::string add(const std::string& path);
  void clear() { files_.clear(); }
  bool empty() const { return files_.empty(); }
  std::string list() const;  // lines, for the user

  // The message with the files before it, each fenced; afterwards none are left.
  std::string take(const std::string& message);

 private:
  struct File {
    std::string name, text;
  };
  std::size_t bytes() const;
  std::vector<File> files_;
};

// A path as it is typed: quotes around it, a backslash before a blank and a tilde at its start are
// those of a shell.
std::string typed_path(const std::string& text);

}  // namespace moeflux::cli
