#include "engine/measure/test_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/aligned_buffer.h"

namespace moeflux {
namespace {

constexpr std::size_t kWriteChunk = std::size_t{4} << 20;

[[noreturn]] void fail_io(const std::string& directory, const char* what, int error) {
  fail(Errc::Io, "{}: cannot {} a test file: {}", directory, what,
       std::generic_category().message(error));
}

// Without a name from the start where the file system can do that, else removed at once.
Descriptor open_unnamed(const std::string& directory) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC;
  for (const int flags : {kFlags | O_DIRECT, kFlags}) {
    Descriptor file(::open(directory.c_str(), flags | O_TMPFILE, 0600));
    if (file.get() >= 0) return file;
  }
  std::string name = directory + "/.moeflux-test-XXXXXX";
  Descriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (file.get() < 0) fail_io(directory, "make", errno);
  ::unlink(name.c_str());
  // Refused where there is no direct I/O: then it is written through the page cache.
  static_cast<void>(::fcntl(file.get(), F_SETFL, O_DIRECT));
  return file;
}

void fill_random(std::span<std::byte> out, std::uint64_t& state) {
  for (std::size_t i = 0; i + sizeof(state) <= out.size(); i += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(out.data() + i, &state, sizeof(state));
  }
}

void write_all(int fd, std::span<const std::byte> bytes, std::uint64_t offset,
               const std::string& directory) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_io(directory, "write", n < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

}  // namespace

TestFile::TestFile(const std::string& directory, const Options& options)
    : file_(open_unnamed(directory)), path_(fmt::format("/proc/self/fd/{}", file_.get())) {
  using Clock = std::chrono::steady_clock;
  const HugeBuffer chunk(kWriteChunk);
  std::uint64_t random = 0x9E3779B97F4A7C15u;
  const Clock::time_point start = Clock::now();
  while (bytes_ < options.bytes) {
    fill_random(chunk.bytes(), random);
    write_all(file_.get(), chunk.bytes(), bytes_, directory);
    bytes_ += kWriteChunk;
    if (options.progress) options.progress(bytes_);
    if (std::chrono::duration<double>(Clock::now() - start).count() > options.max_seconds) break;
  }
  if (::fdatasync(file_.get()) != 0) fail_io(directory, "write", errno);
  ::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace moeflux
