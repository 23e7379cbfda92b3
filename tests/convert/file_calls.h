// The system calls by which this program changes files, in the order in which the code under test
// makes them. A test can watch them, let one fail, or end the process at one of them.
//
// Linking this file replaces pwrite, ftruncate, fallocate, fdatasync, fsync and rename for the
// whole test program; without a hook they do what they always do. With one, nothing waits for the
// disk: what a process wrote outlives it in the page cache, and a busy disk would make hundreds of
// conversions slow.
#pragma once

#include <functional>
#include <string>

namespace moeflux::test {

struct FileCall {
  std::string name;  // "pwrite", "fsync", ...
  std::string path;  // of the file or directory; of a rename the new name
};

// Asked before each call, one thread at a time. An errno makes the call fail with it; 0 lets it be
// made.
using FileCallHook = std::function<int(const FileCall&)>;

// Hooks calls until it is destroyed. One at a time.
class FileCallGuard {
 public:
  explicit FileCallGuard(FileCallHook hook = [](const FileCall&) { return 0; });
  ~FileCallGuard();
  FileCallGuard(const FileCallGuard&) = delete;
  FileCallGuard& operator=(const FileCallGuard&) = delete;
};

}  // namespace moeflux::test
