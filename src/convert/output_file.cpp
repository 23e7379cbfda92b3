#include "convert/output_file.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

namespace moeflux {
namespace {

[[noreturn]] void io_failure(const std::string& path, std::string_view what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  fail(Errc::Io, "{}: {} failed: {}{}", path, what, std::generic_category().message(error),
       full ? "; make room and run the same command again to resume" : "");
}

int open_for_writing(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  if (fd < 0) io_failure(path, "creating it", errno);
  return fd;
}

void write_all(int fd, const std::string& path, std::uint64_t offset,
               std::span<const std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      io_failure(path, fmt::format("writing {} bytes at {}", bytes.size(), offset), error);
    }
    done += static_cast<std::size_t>(n);
  }
}

// A filesystem that cannot reserve space finds out while writing.
void reserve(int fd, const std::string& path, std::uint64_t bytes) {
  if (bytes == 0) return;
  while (::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) return;
    io_failure(path, fmt::format("reserving {} bytes", bytes), errno);
  }
}

}  // namespace

OutputFile::OutputFile(std::string path, std::uint64_t bytes, Mode mode)
    : path_(std::move(path)), fd_(open_for_writing(path_, mode == Mode::Fresh ? O_TRUNC : 0)) {
  try {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
      io_failure(path_, fmt::format("extending it to {} bytes", bytes), errno);
    }
    reserve(fd_, path_, bytes);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

void OutputFile::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  write_all(fd_, path_, offset, bytes);
  // A hint; a filesystem that does not know it writes the pages later.
  ::sync_file_range(fd_, static_cast<off64_t>(offset), static_cast<off64_t>(bytes.size()),
                    SYNC_FILE_RANGE_WRITE);
}

void OutputFile::sync() const {
  while (::fdatasync(fd_) != 0) {
    if (errno != EINTR) io_failure(path_, "syncing it", errno);
  }
}

void OutputFile::drop_cache() const {
  ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
}

void write_whole_file(const std::string& path, std::string_view content) {
  const std::string part = fmt::format("{}{}", path, kPartSuffix);
  {
    const OutputFile file(part, content.size(), OutputFile::Mode::Fresh);
    file.write(0, std::as_bytes(std::span(content)));
    file.sync();
  }
  if (std::rename(part.c_str(), path.c_str()) != 0) io_failure(path, "renaming to it", errno);
  sync_directory(std::filesystem::path(path).parent_path().string());
}

void sync_directory(const std::string& directory) {
  const std::string path = directory.empty() ? "." : directory;
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) io_failure(path, "opening the directory", errno);
  // Some filesystems cannot sync a directory; they order its changes themselves.
  const bool synced = ::fsync(fd) == 0 || errno == EINVAL;
  const int error = errno;
  ::close(fd);
  if (!synced) io_failure(path, "syncing the directory", error);
}

NewDirectories::~NewDirectories() {
  for (auto it = created_.rbegin(); it != created_.rend(); ++it) ::rmdir(it->c_str());
}

void NewDirectories::create(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path path = fs::absolute(directory, error);
  if (!path.has_filename()) path = path.parent_path();  // "a/b/" is "a/b"
  std::vector<fs::path> missing;                        // from the bottom up
  for (fs::path at = path; !error && !directory_exists(at.string()); at = at.parent_path()) {
    if (at == at.parent_path()) break;
    missing.push_back(at);
  }
  for (auto it = missing.rbegin(); !error && it != missing.rend(); ++it) {
    if (fs::create_directory(*it, error)) created_.push_back(it->string());
    if (!error) sync_directory(it->parent_path().string());
  }
  if (error || !directory_exists(path.string())) {
    fail(Errc::Io, "{}: cannot create the directory: {}", directory,
         error ? error.message() : "something else has that name");
  }
}

DirectoryLock::DirectoryLock(const std::string& directory)
    : fd_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) {
    fail(Errc::Io, "{}: cannot open the directory: {}", directory,
         std::generic_category().message(errno));
  }
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(fd_);
  fail(Errc::BadInput,
       "{}: another conversion is writing into it; wait for its end or give another directory",
       directory);
}

DirectoryLock::~DirectoryLock() {
  ::close(fd_);
}

}  // namespace moeflux
