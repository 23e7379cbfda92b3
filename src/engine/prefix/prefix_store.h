// Prefixes of sessions on disk, shared by all sessions and processes of a user: what a model has
// read once need not be read again, in the next turn or after a restart. docs/PREFIX_STORE.md.
//
// The store is a cache. Whatever is wrong with its directory or its files is a miss or a write that
// does not happen, and a sentence in warning(); a caller never has to handle it. A file is used
// only when its identity, its tokens and its checksum are right; one that is damaged is deleted.
//
// This class knows names, files, sizes and bytes. What the bytes are is the business of
// engine/prefix/session_sync.h. Several processes may use one directory; one object is used by one
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/prefix/prefix_store_file.h"

namespace moeflux {

// Whether a prefix is worth its files. Recurrent state takes the same bytes after ten tokens as
// after ten thousand, so what counts is how many tokens it saves reading again, against the time
// that its bytes take and the wear they cost.
struct PrefixWorth {
  // A prefix of which nothing is stored: a single short question is seldom continued.
  std::int64_t min_tokens = 64;
  // More than what is stored: a chat that has been continued will be again, but a few tokens are
  // soon read.
  std::int64_t min_new = 24;
  // To write and to read back, on a drive that does either at 2 GB/s. Reading the whole prefix
  // again must take longer.
  double seconds_per_byte = 1e-9;
};

struct PrefixGain {
  std::int64_t n_tokens = 0;     // of the prefix
  std::int64_t n_stored = 0;     // of them, those that need not be read even without it
  std::uint64_t bytes = 0;       // to write
  double seconds_per_token = 0;  // to read one; 0: not known
};

bool is_worth_storing(const PrefixWorth& worth, const PrefixGain& gain);

struct PrefixStoreOptions {
  std::string directory;
  std::uint64_t max_bytes = std::uint64_t{8} << 30;  // and never more than a tenth of the free disk
  std::uint64_t max_bytes_per_day = std::uint64_t{64} << 30;  // written; 0: no limit
  PrefixWorth worth = {};
  std::int64_t block = 256;      // positions of a block; stores of another size are not found
  std::int64_t interval = 2048;  // positions between two states of a long prompt
  std::int64_t leftover_seconds = 3600;  // age at which the files of killed writers are deleted
  // What the user may still write there; empty: what statvfs says.
  std::function<std::uint64_t(const std::string& directory)> free_bytes = {};
};

struct PrefixStoreStats {
  std::uint64_t files_read = 0, bytes_read = 0;
  std::uint64_t files_written = 0, bytes_written = 0;
  std::uint64_t files_damaged = 0;  // found and deleted
  std::uint64_t files_evicted = 0;
};

std::uint64_t total_bytes(std::span<const PrefixFileInfo> files);

class PrefixStore {
 public:
  // Touches nothing yet. `identity` names the model and everything that changes its numbers.
  PrefixStore(PrefixStoreOptions options, std::string identity);

  const PrefixStoreOptions& options() const { return options_; }
  const std::string& identity() const { return identity_; }
  const PrefixStoreStats& stats() const { return stats_; }
  // Why the store does not do what it could, the first time that happens; empty: it does.
  const std::string& warning() const { return warning_; }

  // The names along `tokens`, which must outlive the result.
  PrefixKeys keys(std::span<const TokenId> tokens) const;

  // The positions, furthest first and at most `limit`, at which a session can continue: those with
  // a state and, unless `needs_state`, ends of blocks. All blocks before them are there as well, by
  // their names.
  std::vector<std::int64_t> find(const PrefixKeys& keys, std::int64_t limit,
                                 bool needs_state) const;
  bool has(const PrefixName& name) const;

  // Hands the payload to `take` piece by piece. False when there is no such file or it is not
  // sound: then whatever `take` was given must be forgotten.
  bool read(const PrefixFileInfo& info, const std::function<void(PrefixFileReader&)>& take);
  void touch(const PrefixName& name) const;  // counts as used now

  // Asks for room for `missing`, which are to be written, and evicts older files for it, but none
  // of `kept`: both together are one chain. False: nothing may be written now.
  bool reserve(std::span<const PrefixFileInfo> missing, std::span<const PrefixFileInfo> kept);
  // False when that failed; the store then writes nothing more.
  bool write(const PrefixFileInfo& info, const std::function<void(PrefixFileWriter&)>& put);
  // Evicts what is too much: several who have reserved at the same time may have written more
  // than there was room for.
  void trim();

 private:
  std::string path(const PrefixName& name) const { return folder_ + "/" + name.text(); }
  bool make_room(std::uint64_t needed, std::span<const PrefixFileInfo> kept);
  void stop_writing(const std::string& why);

  PrefixStoreOptions options_;
  std::string identity_;
  std::uint64_t root_;
  std::string folder_;
  bool writes_ = true;
  std::string warning_;
  PrefixStoreStats stats_;
};

}  // namespace moeflux
