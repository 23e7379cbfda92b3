#include "hub/part_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kMagic = 0x3130'5452'4150'464d;  // "MFPART01"
constexpr std::uint64_t kSyncEvery = 256u << 20;
constexpr std::uint64_t kMaxBlocks = 1u << 22;
constexpr std::uint64_t kAlign = 4096;

struct JournalHead {
  std::uint64_t magic, size, block_bytes;
  std::array<char, 40> boot;
};

struct BlockLength {
  std::uint64_t written, synced;
};

std::uint64_t journal_begin(std::uint64_t size) {
  return (size + kAlign - 1) / kAlign * kAlign;
}

std::uint64_t length_place(std::uint64_t size, std::size_t block) {
  return journal_begin(size) + sizeof(JournalHead) + block * sizeof(BlockLength);
}

std::uint64_t count_blocks(std::uint64_t size, std::uint64_t block_bytes) {
  return std::max<std::uint64_t>((size + block_bytes - 1) / block_bytes, 1);
}

// Another one after each start of the machine; "" where the kernel does not say.
std::array<char, 40> this_boot() {
  std::array<char, 40> boot{};
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return boot;
  if (::read(fd, boot.data(), boot.size() - 1) < 0) boot = {};
  ::close(fd);
  return boot;
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

PartFile::PartFile(std::string path, std::uint64_t size, std::uint64_t block_bytes)
    : path_(std::move(path)), size_(size), block_bytes_(std::max<std::uint64_t>(block_bytes, 1)) {
  block_bytes_ = std::max(block_bytes_, size_ / kMaxBlocks + 1);
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd_ < 0) failed("creating it", errno);
  try {
    if (read_journal()) return;
    lengths_ = std::vector<std::atomic<std::uint64_t>>(count_blocks(size_, block_bytes_));
    const auto all = static_cast<off_t>(length_place(size_, lengths_.size()));
    if (::ftruncate(fd_, 0) != 0) failed("emptying it", errno);
    // Room that is taken now cannot be missing later. Some file systems cannot promise it.
    if (::fallocate(fd_, 0, 0, all) != 0 && errno == ENOSPC) failed("making room for it", errno);
    if (::ftruncate(fd_, all) != 0) failed("making it as long as it will be", errno);
    write_journal();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

PartFile::~PartFile() {
  if (fd_ >= 0) ::close(fd_);
}

void PartFile::failed(const char* what, int error) const {
  const std::string why = std::generic_category().message(error);
  if (error == ENOSPC || error == EDQUOT) {
    fail(Errc::Io,
         "{}: {} failed: {}; make room on that drive, or keep the cache on another one "
         "(HF_HUB_CACHE)",
         path_, what, why);
  }
  fail(Errc::Io, "{}: {} failed: {}", path_, what, why);
}

std::uint64_t PartFile::end(std::size_t block) const {
  return std::min(begin(block) + block_bytes_, size_);
}

std::uint64_t PartFile::bytes_done() const {
  std::uint64_t sum = 0;
  for (const auto& each : lengths_) sum += each.load();
  return sum;
}

// False: there is no journal, or it is of another file.
bool PartFile::read_journal() {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) failed("looking at it", errno);
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes == size_ && size_ > 0) {  // killed between the cut and the new name
    lengths_ = std::vector<std::atomic<std::uint64_t>>(count_blocks(size_, block_bytes_));
    for (std::size_t i = 0; i < lengths_.size(); ++i) lengths_[i] = end(i) - begin(i);
    write_journal();
    return true;
  }
  if (bytes < journal_begin(size_) + sizeof(JournalHead)) return false;
  JournalHead head{};
  read(journal_begin(size_), std::as_writable_bytes(std::span(&head, 1)));
  if (head.magic != kMagic || head.size != size_ || head.block_bytes == 0 ||
      count_blocks(size_, head.block_bytes) > kMaxBlocks + 1 ||
      bytes != length_place(size_, count_blocks(size_, head.block_bytes)))
    return false;
  block_bytes_ = head.block_bytes;
  std::vector<BlockLength> lengths(count_blocks(size_, block_bytes_));
  read(length_place(size_, 0), std::as_writable_bytes(std::span(lengths)));
  lengths_ = std::vector<std::atomic<std::uint64_t>>(lengths.size());
  const std::array<char, 40> boot = this_boot();
  const bool same_boot = boot.front() != '\0' && boot == head.boot;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::uint64_t length = same_boot ? lengths[i].written : lengths[i].synced;
    lengths_[i] = std::min(length, end(i) - begin(i));
  }
  if (!same_boot) write_journal();
  return true;
}

// As if nothing but what is known had been synced.
void PartFile::write_journal() {
  std::vector<BlockLength> lengths;
  for (const auto& each : lengths_) lengths.push_back({each.load(), each.load()});
  write_at(length_place(size_, 0), std::as_bytes(std::span(lengths)));
  const JournalHead head{kMagic, size_, block_bytes_, this_boot()};
  write_at(journal_begin(size_), bytes_of(head));
}

void PartFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) failed("writing to it", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

void PartFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) failed("reading it", errno);
    if (n == 0) fail(Errc::Io, "{}: ends at byte {}, too early", path_, offset);
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

void PartFile::append(std::size_t block, std::span<const std::byte> bytes) {
  const std::uint64_t at = begin(block) + done(block);
  MOEFLUX_ASSERT(at + bytes.size() <= end(block));
  write_at(at, bytes);
  const std::uint64_t length = done(block) + bytes.size();
  write_at(length_place(size_, block), bytes_of(length));
  lengths_[block] = length;
  if (unsynced_.fetch_add(bytes.size()) + bytes.size() >= kSyncEvery) sync();
}

void PartFile::sync() {
  const std::unique_lock lock(sync_mutex_, std::try_to_lock);
  if (!lock) return;
  unsynced_ = 0;
  std::vector<std::uint64_t> lengths;
  for (const auto& each : lengths_) lengths.push_back(each.load());
  if (::fdatasync(fd_) != 0) failed("syncing it", errno);
  for (std::size_t i = 0; i < lengths.size(); ++i)
    write_at(length_place(size_, i) + sizeof(std::uint64_t), bytes_of(lengths[i]));
}

void PartFile::clear() {
  for (auto& each : lengths_) each = 0;
  write_journal();
}

void PartFile::finish(const std::string& final_path) {
  if (::ftruncate(fd_, static_cast<off_t>(size_)) != 0) failed("cutting it", errno);
  if (::fsync(fd_) != 0) failed("syncing it", errno);
  if (::rename(path_.c_str(), final_path.c_str()) != 0) failed("renaming it", errno);
  const std::string parent = std::filesystem::path(final_path).parent_path().string();
  if (const int fd = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
}

std::uint64_t allocated_bytes(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return 0;
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

}  // namespace moeflux
