// Keeps two processes from writing into one directory at the same time. The lock goes with the
// process, however it ends, and leaves nothing behind.
#pragma once

#include <string>

namespace moeflux {

class DirectoryLock {
 public:
  // Throws Error(BadInput) when another one holds it. A filesystem without locks grants all.
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace moeflux
