#include "convert/bandwidth.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "base/aligned_buffer.h"
#include "base/error.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBlockBytes = 4u << 20;
constexpr std::size_t kAlignment = 4096;  // of memory, for direct I/O
constexpr std::size_t kMaxBytes = 256u << 20;
constexpr double kSeconds = 0.5;  // each for writing and reading

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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
