#include "base/file.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace moeflux {
namespace {

std::string describe(int error) {
  return std::generic_category().message(error);
}

}  // namespace

File::File(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a FIFO must fail below, not hang here; regular files ignore it.
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) {
    const int error = errno;
    fail(error == ENOENT ? Errc::NotFound : Errc::Io, "{}: cannot open: {}{}", path_,
         describe(error), error == EMFILE ? "; allow more with ulimit -n" : "");
  }
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd_);
    fd_ = -1;
    fail(Errc::BadInput, "{}: not a regular file", path_);
  }
  size_ = static_cast<std::uint64_t>(info.st_size);
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), fd_(other.fd_), size_(other.size_) {
  other.fd_ = -1;
}

void File::read(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n =
        ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      fail(Errc::Io, "{}: read of {} bytes at {} failed: {}", path_, out.size(), offset,
           describe(errno));
    if (n == 0)
      fail(Errc::Io, "{}: ends at byte {}, but {} bytes at {} were expected", path_, offset + done,
           out.size(), offset);
    done += static_cast<std::size_t>(n);
  }
}

std::string read_text_file(const std::string& path, std::uint64_t max_bytes) {
  const File file(path);
  if (file.size() > max_bytes) {
    fail(Errc::LimitExceeded, "{}: {} bytes, more than the {} allowed here", path, file.size(),
         max_bytes);
  }
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

bool file_exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool directory_exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace moeflux
