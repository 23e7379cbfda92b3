#include "convert/file_calls.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <mutex>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace moeflux::test {
namespace {

std::atomic<bool> hooked{false};
std::mutex mutex;  // guards the hook
FileCallHook current_hook;

std::string path_of(int descriptor) {
  std::string path(PATH_MAX, '\0');
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t n = ::readlink(link.c_str(), path.data(), path.size());
  path.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return path;
}

// Whether the call is to be made; otherwise errno is set.
bool allowed(const char* name, const std::string& path) {
  const std::lock_guard lock(mutex);
  const int error = current_hook ? current_hook({name, path}) : 0;
  if (error != 0) errno = error;
  return error == 0;
}

bool allowed(const char* name, int descriptor) {
  return !hooked || allowed(name, path_of(descriptor));
}

}  // namespace

FileCallGuard::FileCallGuard(FileCallHook hook) {
  const std::lock_guard lock(mutex);
  current_hook = std::move(hook);
  hooked = true;
}

FileCallGuard::~FileCallGuard() {
  const std::lock_guard lock(mutex);
  hooked = false;
  current_hook = nullptr;
}

}  // namespace moeflux::test

using moeflux::test::allowed;
using moeflux::test::hooked;

extern "C" {

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  return allowed("pwrite", fd) ? ::syscall(SYS_pwrite64, fd, bytes, size, offset) : -1;
}

int ftruncate(int fd, off_t size) noexcept {
  return allowed("ftruncate", fd) ? static_cast<int>(::syscall(SYS_ftruncate, fd, size)) : -1;
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
  return allowed("fallocate", fd)
             ? static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, size))
             : -1;
}

int fdatasync(int fd) {
  if (hooked) return allowed("fdatasync", fd) ? 0 : -1;
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

int fsync(int fd) {
  if (hooked) return allowed("fsync", fd) ? 0 : -1;
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

// Hints, of which these two begin to write.
int sync_file_range(int fd, off64_t offset, off64_t size, unsigned flags) {
  if (hooked) return 0;
  return static_cast<int>(::syscall(SYS_sync_file_range, fd, offset, size, flags));
}

int posix_fadvise(int fd, off_t offset, off_t size, int advice) noexcept {
  if (hooked) return 0;
  return ::syscall(SYS_fadvise64, fd, offset, size, advice) == 0 ? 0 : errno;
}

int rename(const char* from, const char* to) noexcept {
  if (hooked && !allowed("rename", std::string(to))) return -1;
  return static_cast<int>(::syscall(SYS_rename, from, to));
}

}  // extern "C"
