// A file that appears under its name whole or not at all, whenever the process or the machine
// stops: it is written to NAME.part, synced, and renamed. Two processes that write the same file
// take turns by a lock on NAME.part, which is left behind by one that was killed and reused by the
// next.
#pragma once

#include <string>
#include <string_view>

namespace moeflux {

class AtomicFile {
 public:
  // Throws Error(Io), also when another process is writing this file now.
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // without commit() nothing is left
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);  // appends
  void commit();                       // the last call

 private:
  std::string path_, part_;
  int fd_ = -1;
};

}  // namespace moeflux
