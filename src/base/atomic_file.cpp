#include "base/atomic_file.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

namespace moeflux {
namespace {

[[noreturn]] void io_failure(const std::string& path, std::string_view what, int error) {
  fail(Errc::Io, "{}: {} failed: {}", path, what, std::generic_category().message(error));
}

bool same_file(int fd, const std::string& path) {
  struct stat ours {
  }, named{};
  return ::fstat(fd, &ours) == 0 && ::stat(path.c_str(), &named) == 0 &&
         ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

// An open descriptor that is alone on `part`. Between opening and locking it, the one who held it
// may have renamed it: what is locked then is the finished file, and it must not be touched.
int open_alone(const std::string& part, FileAccess access) {
  const mode_t mode = access == FileAccess::Private ? 0600 : 0644;
  while (true) {
    const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) io_failure(part, "creating it", errno);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      ::close(fd);
      if (error == EWOULDBLOCK) fail(Errc::Io, "{}: another process is writing it", part);
      io_failure(part, "locking it", error);
    }
    if (same_file(fd, part)) {
      // One that was left behind may have other rights; some filesystems know none.
      if (access == FileAccess::Private) static_cast<void>(::fchmod(fd, mode));
      return fd;
    }
    ::close(fd);
  }
}

void sync_directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const int fd = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // the file is there; only how soon its name lasts is not known
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

AtomicFile::AtomicFile(std::string path, FileAccess access)
    : path_(std::move(path)), part_(path_ + ".part"), fd_(open_alone(part_, access)) {
  if (::ftruncate(fd_, 0) != 0) {
    const int error = errno;
    ::close(fd_);
    io_failure(part_, "emptying it", error);
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::unlink(part_.c_str());
  ::close(fd_);
}

void AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) io_failure(part_, fmt::format("writing {} bytes", bytes.size()), errno);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void AtomicFile::commit() {
  while (::fsync(fd_) != 0) {
    if (errno != EINTR) io_failure(part_, "syncing it", errno);
  }
  if (std::rename(part_.c_str(), path_.c_str()) != 0) io_failure(path_, "renaming to it", errno);
  ::close(fd_);
  fd_ = -1;
  sync_directory_of(path_);
}

void make_private_directory(const std::string& path) {
  if (path.empty()) fail(Errc::Io, "no name for a directory");
  std::filesystem::path part;
  for (const std::filesystem::path& name : std::filesystem::path(path)) {
    part /= name;
    if (::mkdir(part.c_str(), 0700) == 0) continue;
    const int error = errno;
    // A parent that exists may answer EACCES or EROFS as well.
    if (!directory_exists(part.string())) io_failure(part.string(), "creating it", error);
  }
}

void make_private_parent(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (!parent.empty()) make_private_directory(parent);
}

}  // namespace moeflux
