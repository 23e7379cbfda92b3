// A file that grows in several places at once, and remembers how far each of them is: what was
// fetched before a kill is not fetched again.
//
// Blocks are filled from their beginnings. Behind the bytes of the file, in the same file, stands a
// journal with the length of each block; a block's bytes are written before its length. After a
// kill of the process all of it holds, since the kernel has the bytes. After a crash of the machine
// only what was synced does, so the journal has both, and the kernel's name for this start of the
// machine. Whatever the journal says, the file counts as whole only once its hash is right.
//
// Several threads may append to different blocks. Two processes must not have the same file open.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace moeflux {

class PartFile {
 public:
  // Takes up what lies at `path`, or begins a new file with room for all of it. `block_bytes` is
  // for a new one; one that was begun keeps its own. Throws Error(Io).
  PartFile(std::string path, std::uint64_t size, std::uint64_t block_bytes);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  std::uint64_t size() const { return size_; }
  std::size_t n_blocks() const { return lengths_.size(); }
  std::uint64_t begin(std::size_t block) const { return block * block_bytes_; }
  std::uint64_t end(std::size_t block) const;
  std::uint64_t done(std::size_t block) const { return lengths_[block].load(); }  // of its bytes
  bool is_whole(std::size_t block) const { return begin(block) + done(block) == end(block); }
  std::uint64_t bytes_done() const;

  void append(std::size_t block, std::span<const std::byte> bytes);
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  void clear();  // forgets all bytes

  // Cuts the journal off, and gives the file its final name. The last call.
  void finish(const std::string& final_path);

 private:
  bool read_journal();
  void write_journal();
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void sync();
  [[noreturn]] void failed(const char* what, int error) const;

  const std::string path_;
  const std::uint64_t size_;
  std::uint64_t block_bytes_;
  int fd_ = -1;
  std::vector<std::atomic<std::uint64_t>> lengths_;
  std::atomic<std::uint64_t> unsynced_ = 0;
  std::mutex sync_mutex_;
};

// Bytes of the drive that a file takes already; 0 where there is none.
std::uint64_t allocated_bytes(const std::string& path);

}  // namespace moeflux
