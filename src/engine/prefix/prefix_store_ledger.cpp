#include "engine/prefix/prefix_store_ledger.h"

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/system_file.h"

namespace moeflux {

std::optional<PrefixStoreLock> PrefixStoreLock::take(const std::string& directory, int timeout_ms) {
  const std::string path = directory + "/lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    fail(Errc::Io, "{}: opening it failed: {}", path, std::generic_category().message(errno));
  PrefixStoreLock lock(fd);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) break;  // a filesystem without locks grants all
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return lock;
}

PrefixStoreLock::~PrefixStoreLock() {
  if (fd_ >= 0) ::close(fd_);
}

std::uint64_t bytes_written_on(const std::string& directory, std::int64_t day) {
  const auto text = read_system_file(directory + "/written", 64);
  if (!text) return 0;
  const auto words = split_words(*text);
  if (words.size() != 2) return 0;
  const auto of_day = parse_number(words[0]);
  const auto bytes = parse_number(words[1]);
  return of_day && bytes && *of_day == static_cast<std::uint64_t>(day) ? *bytes : 0;
}

void set_bytes_written(const std::string& directory, std::int64_t day, std::uint64_t bytes) {
  AtomicFile file(directory + "/written", FileAccess::Private);
  file.write(fmt::format("{} {}\n", day, bytes));
  file.commit();
}

}  // namespace moeflux
