// The directory of a prefix store: what lies in it, what of it to evict first, how several
// processes share it, and what is done with it as a whole. A scan looks at names, sizes and times
// only; no file is opened, so ten thousand of them take milliseconds.
//
//   DIRECTORY/lock, DIRECTORY/written       shared by all processes, see below
//   DIRECTORY/ROOT/NAME                     a file; ROOT is the root key of one model
//   DIRECTORY/ROOT/NAME.part                a file that is being written, or what a killed writer
//   left
//
// Everything else is not ours: it is counted and left alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/prefix/prefix_store_file.h"

namespace moeflux {

inline constexpr std::int64_t kInUse = INT64_MAX;  // not to be evicted

struct PrefixFile {
  std::uint64_t root = 0;
  PrefixName name;
  std::uint64_t bytes = 0;
  std::int64_t used_ns = 0;  // when it was last written or read, since 1970; or kInUse

  std::string path(const std::string& directory) const;
};

struct PrefixScan {
  std::vector<PrefixFile> files;
  std::vector<std::string> leftovers;  // paths of .part files
  std::uint64_t bytes = 0;             // of files
  std::uint64_t n_foreign = 0;
};

// Empty when the directory does not exist or cannot be read; throws nothing but bad_alloc. What
// vanishes meanwhile is not there.
PrefixScan scan_prefix_store(const std::string& directory);
// Only the names of one model's files.
std::vector<PrefixName> scan_prefix_names(const std::string& directory, std::uint64_t root);

// The files to delete, in this order, to free that many bytes or all. The least recently used go
// first, but never one that others continue: a state goes before the blocks it needs. What can no
// longer be used, because a block before it is missing, goes before everything else.
std::vector<const PrefixFile*> choose_victims(std::span<const PrefixFile> files,
                                              std::uint64_t bytes);

// Deletes .part files which nobody writes and nobody has touched for that long.
void remove_leftovers(std::span<const std::string> paths, std::int64_t min_age_seconds);

// How several processes share one prefix store: a lock for what must not happen twice at a time
// (evicting files, counting), and the count of bytes written today. Reading needs neither.

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

// A prefix store as a whole, for whoever looks after it: what it holds, whether it is sound, and
// how to empty it. Needs no model.

// The files of one model, as computed in one way.
struct PrefixStoreModel {
  std::uint64_t root = 0;
  std::string identity;  // as session_sync.h words it; "" when no file says it
  std::uint64_t n_states = 0, n_blocks = 0;
  std::uint64_t bytes = 0;
  std::int64_t longest = 0;  // positions
  std::int64_t used_ns = 0;  // the latest use
};

struct PrefixStoreSummary {
  std::vector<PrefixStoreModel> models;  // the one used last comes first
  std::uint64_t bytes = 0;
  std::uint64_t n_files = 0, n_leftovers = 0, n_foreign = 0;
  std::uint64_t written_today = 0;
};
PrefixStoreSummary summarize_prefix_store(const std::string& directory);

// Reads every byte and removes files that are damaged; those that cannot be read stay.
struct PrefixStoreCheck {
  std::uint64_t n_files = 0, bytes = 0;
  std::vector<std::string> damaged;  // why, one line each
};
PrefixStoreCheck verify_prefix_store(const std::string& directory);

// Deletes all files of the store and what killed writers left, and nothing else. Returns how many
// files. Throws Error(Io) when one cannot be deleted.
std::uint64_t clear_prefix_store(const std::string& directory);

}  // namespace moeflux
