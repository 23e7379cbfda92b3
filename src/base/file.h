// A read-only file: opened once, read at offsets, every failure an Error that names the path.
// Thread-safe: reads are positional.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace moeflux {

class File {
 public:
  // Throws NotFound or Io. Refuses anything that is not a regular file.
  explicit File(std::string path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  int descriptor() const { return fd_; }

  // Fills `out` from `offset`, retrying short reads and EINTR. A file that ends early is an Error.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

// The whole file as bytes, refusing one of more than `max_bytes`.
std::string read_text_file(const std::string& path, std::uint64_t max_bytes = 256u << 20);

bool file_exists(const std::string& path);       // a regular file, or a link to one
bool directory_exists(const std::string& path);  // a directory, or a link to one

}  // namespace moeflux
