// A file that appears under its name whole or not at all, whenever the process or the machine
// stops: it is written to NAME.part, synced, and renamed. Two processes that write the same file
// take turns by a lock on NAME.part, which is left behind by one that was killed and reused by the
// next.
#pragma once

#include <string>
#include <string_view>

namespace moeflux {

// Who may read a file besides its owner: what the umask says, or nobody. The latter is for what
// tells what a user has said or done.
enum class FileAccess { Shared, Private };

class AtomicFile {
 public:
  // Throws Error(Io), also when another process is writing this file now.
  explicit AtomicFile(std::string path, FileAccess access = FileAccess::Shared);
  ~AtomicFile();  // without commit() nothing is left
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);  // appends
  void commit();                       // the last call

 private:
  std::string path_, part_;
  int fd_ = -1;
};

// Creates it with its parents, for its owner only. Those that exist keep their rights: the user may
// have chosen them. Throws Error(Io).
void make_private_directory(const std::string& path);
void make_private_parent(const std::string& path);  // the directory that a file is to be in

}  // namespace moeflux
