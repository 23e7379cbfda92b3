#include "convert/directory_lock.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"

namespace moeflux {

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
