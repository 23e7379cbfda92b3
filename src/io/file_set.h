// The files a reader reads, opened once: a direct descriptor (O_DIRECT: past the page cache,
// straight into our memory) where the filesystem allows it, and always a buffered one, which
// finishes what direct I/O cannot. Immutable after construction, so any thread may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"

namespace moeflux {

// A read lands in place, without a copy, when the pointer and the offset agree: the first byte on a
// multiple of `offset` in the file must have an address that is a multiple of `memory`. With {1, 1}
// (buffered) every read does.
struct FileAlignment {
  std::size_t offset = 1;  // powers of two; memory <= offset
  std::size_t memory = 1;
  bool direct() const { return offset > 1; }
};

// Closes a descriptor it owns.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

class FileSet {
 public:
  // Throws Error(NotFound, Io, BadInput) naming the path. Without `direct` all files are buffered.
  FileSet(const std::vector<std::string>& paths, bool direct);

  int size() const { return static_cast<int>(files_.size()); }
  bool contains(int file) const { return file >= 0 && file < size(); }
  int n_direct() const { return n_direct_; }

  const std::string& path(int file) const { return at(file).buffered->path(); }
  std::uint64_t bytes(int file) const { return at(file).buffered->size(); }  // when it was opened
  const FileAlignment& alignment(int file) const { return at(file).alignment; }
  int direct_fd(int file) const { return at(file).direct.get(); }  // -1 when there is none
  int buffered_fd(int file) const { return at(file).buffered->descriptor(); }
  std::size_t largest_block() const { return largest_block_; }  // of all alignments

 private:
  struct OpenFile {
    std::unique_ptr<File> buffered;
    Descriptor direct;
    FileAlignment alignment;
  };
  const OpenFile& at(int file) const { return files_[static_cast<std::size_t>(file)]; }
  void open_direct(OpenFile& file);

  std::vector<OpenFile> files_;
  int n_direct_ = 0;
  std::size_t largest_block_ = 1;
};

}  // namespace moeflux
