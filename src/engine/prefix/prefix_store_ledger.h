// How several processes share one prefix store: a lock for what must not happen twice at a time
// (giving files up, counting), and the count of bytes written today. Reading needs neither.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moeflux {

// DIRECTORY/lock, held while the object lives and no longer than the process. Whoever holds it does
// nothing that takes long, so one that does not come free belongs to a process that is stopped.
class PrefixStoreLock {
 public:
  // Waits for at most that long; nothing then. Throws Error(Io) when there can be no lock at all.
  static std::optional<PrefixStoreLock> take(const std::string& directory, int timeout_ms = 1000);
  ~PrefixStoreLock();
  PrefixStoreLock(PrefixStoreLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  PrefixStoreLock& operator=(PrefixStoreLock&&) = delete;

 private:
  explicit PrefixStoreLock(int fd) : fd_(fd) {}
  int fd_;
};

// DIRECTORY/written: the day (since 1970, UTC) and the bytes written on it. A file that makes no
// sense counts as nothing written.
inline constexpr std::int64_t kSecondsPerDay = 86400;
std::uint64_t bytes_written_on(const std::string& directory, std::int64_t day);
// Under the lock. Throws Error(Io).
void set_bytes_written(const std::string& directory, std::int64_t day, std::uint64_t bytes);

}  // namespace moeflux
