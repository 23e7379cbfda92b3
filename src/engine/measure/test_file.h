// A file to measure a drive with: filled with bytes that no file system can make smaller, and
// without a name, so that nothing is left of it however the program ends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "io/file_set.h"

namespace moeflux {

class TestFile {
 public:
  struct Options {
    std::uint64_t bytes = std::uint64_t{1} << 30;
    double max_seconds = 4;                         // of writing; what is there by then must do
    std::function<void(std::uint64_t)> progress{};  // bytes so far; may throw to give up
  };

  // Written past the page cache where that is possible. Throws Error(Io) naming `directory`.
  TestFile(const std::string& directory, const Options& options);

  const std::string& path() const { return path_; }  // valid in this process, while this lives
  std::uint64_t bytes() const { return bytes_; }

 private:
  Descriptor file_;
  std::string path_;
  std::uint64_t bytes_ = 0;
};

}  // namespace moeflux
