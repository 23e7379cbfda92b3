#include "convert/drives.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/memory_budget.h"
#include "base/stopwatch.h"

namespace moeflux {
namespace {

// For the manifest, the tokenizer and what the filesystem itself needs.
constexpr std::uint64_t kMargin = 64u << 20;

struct Drive {
  std::string directory;
  std::uint64_t needed = 0;
  std::uint64_t to_come = 0;  // from files that are removed first
};

struct OnDisk {
  dev_t device = 0;
  std::uint64_t bytes = 0;
};

std::optional<OnDisk> find_on_disk(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return OnDisk{info.st_dev, static_cast<std::uint64_t>(info.st_blocks) * 512};
}

std::uint64_t still_needed(const DataFile& file) {
  const std::uint64_t has = find_on_disk(file.path).value_or(OnDisk()).bytes;
  return has < file.bytes ? file.bytes - has : 0;
}

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBlockBytes = 4u << 20;
constexpr std::size_t kAlignment = 4096;  // of memory, for direct I/O
constexpr std::size_t kMaxBytes = 256u << 20;
constexpr double kSeconds = 0.5;  // each for writing and reading

class ScratchFile {
 public:
  explicit ScratchFile(const std::string& directory)
      : fd_(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
    if (fd_ < 0) {  // a filesystem without nameless files
      std::string path = directory + "/moeflux-speed-XXXXXX";
      fd_ = ::mkostemp(path.data(), O_CLOEXEC);
      if (fd_ >= 0) ::unlink(path.c_str());
    }
    if (fd_ < 0) {
      fail(Errc::Io, "{}: cannot create a file: {}", directory,
           std::generic_category().message(errno));
    }
    // Direct I/O measures the drive and not the page cache. Where there is none, the cache is
    // dropped by hand.
    const int flags = ::fcntl(fd_, F_GETFL);
    if (flags >= 0) ::fcntl(fd_, F_SETFL, flags | O_DIRECT);
  }
  ~ScratchFile() { ::close(fd_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  int fd() const { return fd_; }

 private:
  int fd_;
};

// Calls move(offset) for one block after the other until the time is over; returns the bytes moved.
template <class Move>
std::size_t run(std::size_t max_bytes, Move move) {
  const auto start = Clock::now();
  std::size_t done = 0;
  while (done < max_bytes && seconds_since(start) < kSeconds) {
    if (move(static_cast<off_t>(done)) != static_cast<ssize_t>(kBlockBytes)) break;
    done += kBlockBytes;
  }
  return done;
}

}  // namespace

std::uint64_t free_bytes(const std::string& directory) {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) {
    fail(Errc::Io, "{}: cannot tell how much space is free: {}", directory,
         std::generic_category().message(errno));
  }
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

void check_disk_space(const std::vector<DataFile>& files, const FreeBytes& free,
                      const std::vector<std::string>& replaced) {
  std::map<dev_t, Drive> drives;
  for (const DataFile& file : files) {
    const std::string directory = std::filesystem::path(file.path).parent_path().string();
    struct stat info {};
    if (::stat(directory.c_str(), &info) != 0) {
      fail(Errc::Io, "{}: {}", directory, std::generic_category().message(errno));
    }
    Drive& drive = drives[info.st_dev];
    if (drive.directory.empty()) drive.directory = directory;
    drive.needed += replaced.empty() ? still_needed(file) : file.bytes;
  }
  for (const std::string& path : replaced) {
    const std::optional<OnDisk> old = find_on_disk(path);
    if (old && drives.contains(old->device)) drives[old->device].to_come += old->bytes;
  }
  for (const auto& [device, drive] : drives) {
    const std::uint64_t has = free(drive.directory) + drive.to_come;
    if (drive.needed > 0 && drive.needed + kMargin > has) {
      fail(Errc::Io,
           "{}: the container needs {} more here ({} bytes), but only {} are free; make room or "
           "choose another drive",
           drive.directory, format_bytes(drive.needed + kMargin), drive.needed + kMargin,
           format_bytes(has));
    }
  }
}

double measure_read_bandwidth(const std::string& directory) {
  const ScratchFile file(directory);
  const AlignedBuffer memory(kBlockBytes + kAlignment);
  void* at = memory.data();
  std::size_t room = memory.size();
  std::align(kAlignment, kBlockBytes, at, room);
  // Not zeros: some drives and filesystems store those for nothing.
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < kBlockBytes; i += sizeof state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(static_cast<std::byte*>(at) + i, &state, sizeof state);
  }
  const std::size_t written =
      run(kMaxBytes, [&](off_t offset) { return ::pwrite(file.fd(), at, kBlockBytes, offset); });
  if (written == 0) {
    fail(Errc::Io,
         "{}: cannot measure its speed: writing failed: {}; give the shares yourself: "
         "--stripe DIR=3,DIR=1",
         directory, std::generic_category().message(errno));
  }
  ::fdatasync(file.fd());
  ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
  const auto start = Clock::now();
  const std::size_t read =
      run(written, [&](off_t offset) { return ::pread(file.fd(), at, kBlockBytes, offset); });
  return static_cast<double>(std::max(read, kBlockBytes)) / std::max(seconds_since(start), 1e-6);
}

}  // namespace moeflux
