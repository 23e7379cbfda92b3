#include "engine/prefix/prefix_store.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>
#include <unordered_map>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/memory_budget.h"
#include "engine/prefix/prefix_store_directory.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kFreeShare = 10;  // a tenth

// Part of every root key, so that files of another version are never looked at.
constexpr int kFormat = 1;

std::uint64_t root_key(const std::string& identity, std::int64_t block) {
  return checksum(fmt::format("moeflux prefix {} {} {}", kFormat, block, identity));
}

std::uint64_t free_on_disk(const std::string& directory) {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0)
    fail(Errc::Io, "{}: {}", directory, std::generic_category().message(errno));
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

bool written_by_another(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return true;
  const int fd = ::open((path + ".part").c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return locked;
}

bool is_damaged(const std::string& path) {
  try {
    check_prefix_file(path);
    return false;  // sound, but of something else whose name is the same
  } catch (const Error& error) {
    return error.code() == Errc::BadInput;
  }
}

}  // namespace

std::uint64_t total_bytes(std::span<const PrefixFileInfo> files) {
  std::uint64_t bytes = 0;
  for (const PrefixFileInfo& file : files) bytes += file.file_bytes();
  return bytes;
}

PrefixStore::PrefixStore(PrefixStoreOptions options, std::string identity)
    : options_(std::move(options)),
      identity_(std::move(identity)),
      root_(root_key(identity_, options_.block)),
      folder_(options_.directory + "/" + checksum_text(root_)) {
  MOEFLUX_ASSERT(options_.block > 0 && options_.interval > 0);
}

PrefixKeys PrefixStore::keys(std::span<const TokenId> tokens) const {
  return PrefixKeys(root_, options_.block, tokens);
}

std::vector<std::int64_t> PrefixStore::find(const PrefixKeys& keys, std::int64_t limit,
                                            bool needs_state) const {
  const std::vector<PrefixName> names = scan_prefix_names(options_.directory, root_);
  std::unordered_map<std::uint64_t, PrefixName> blocks;
  for (const PrefixName& name : names) {
    if (name.part == PrefixPart::Kv) blocks.emplace(name.key, name);
  }
  const std::int64_t n_most = std::min(keys.n_blocks(), limit / options_.block);
  std::int64_t n_whole = 0;
  while (n_whole < n_most) {
    const PrefixName name = keys.block_name(n_whole);
    const auto found = blocks.find(name.key);
    if (found == blocks.end() || found->second != name) break;
    ++n_whole;
  }
  std::vector<std::int64_t> positions;
  for (const PrefixName& name : names) {
    if (name.part != PrefixPart::State || name.end > limit) continue;
    const std::int64_t n_before = name.end / options_.block;
    if (n_before <= n_whole && name.parent == keys.key_after(n_before) &&
        name == keys.state_name(name.end)) {
      positions.push_back(name.end);
    }
  }
  for (std::int64_t i = 1; i <= n_whole && !needs_state; ++i)
    positions.push_back(i * options_.block);
  std::sort(positions.rbegin(), positions.rend());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

bool PrefixStore::has(const PrefixName& name) const {
  return ::access(path(name).c_str(), F_OK) == 0;
}

bool PrefixStore::read(const PrefixFileInfo& info,
                       const std::function<void(PrefixFileReader&)>& take) {
  const std::string file = path(info.name);
  try {
    PrefixFileReader reader(file, info);
    take(reader);
    reader.finish();
  } catch (const Error& error) {
    // A file that cannot be read at all may be readable by others.
    if (error.code() == Errc::BadInput && is_damaged(file)) {
      ++stats_.files_damaged;
      ::unlink(file.c_str());
    }
    return false;
  }
  ++stats_.files_read;
  stats_.bytes_read += info.file_bytes();
  touch(info.name);
  return true;
}

void PrefixStore::touch(const PrefixName& name) const {
  ::utimensat(AT_FDCWD, path(name).c_str(), nullptr, 0);  // where it cannot, it counts as older
}

void PrefixStore::stop_writing(const std::string& why) {
  writes_ = false;
  if (warning_.empty()) warning_ = fmt::format("nothing more is kept in the prefix store: {}", why);
}

bool PrefixStore::reserve(std::span<const PrefixFileInfo> missing,
                          std::span<const PrefixFileInfo> kept) {
  if (!writes_) return false;
  const std::uint64_t needed = total_bytes(missing);
  try {
    make_private_directory(options_.directory);
    make_private_directory(folder_);
    const auto lock = PrefixStoreLock::take(options_.directory);
    if (!lock) return false;
    const std::int64_t today = std::time(nullptr) / kSecondsPerDay;
    const std::uint64_t written = bytes_written_on(options_.directory, today);
    if (options_.max_bytes_per_day > 0 && written + needed > options_.max_bytes_per_day) {
      stop_writing(fmt::format("{} were written there today, of {} a day that may be",
                               format_bytes(written), format_bytes(options_.max_bytes_per_day)));
      return false;
    }
    if (!make_room(needed, kept)) return false;
    set_bytes_written(options_.directory, today, written + needed);
    return true;
  } catch (const Error& error) {
    stop_writing(error.what());
    return false;
  }
}

bool PrefixStore::make_room(std::uint64_t needed, std::span<const PrefixFileInfo> kept) {
  PrefixScan scan = scan_prefix_store(options_.directory);
  for (PrefixFile& file : scan.files) {
    const bool keep =
        file.root == root_ &&
        std::any_of(kept.begin(), kept.end(), [&](const auto& k) { return k.name == file.name; });
    if (keep) file.used_ns = kInUse;
  }
  remove_leftovers(scan.leftovers, options_.leftover_seconds);
  const std::uint64_t free = options_.free_bytes ? options_.free_bytes(options_.directory)
                                                 : free_on_disk(options_.directory);
  const std::uint64_t allowed = std::min(options_.max_bytes, (free + scan.bytes) / kFreeShare);
  const std::uint64_t chain_bytes = needed + total_bytes(kept);
  const bool fits = chain_bytes <= allowed;
  const std::uint64_t wanted = scan.bytes + (fits ? needed : 0);
  if (wanted > allowed) {
    for (const PrefixFile* file : choose_victims(scan.files, wanted - allowed)) {
      if (::unlink(file->path(options_.directory).c_str()) == 0) ++stats_.files_evicted;
    }
  }
  if (!fits) {
    stop_writing(fmt::format("{}: it may hold {}, but this session takes {}", options_.directory,
                             format_bytes(allowed), format_bytes(chain_bytes)));
  }
  return fits;
}

void PrefixStore::trim() {
  if (!writes_) return;
  try {
    if (const auto lock = PrefixStoreLock::take(options_.directory)) make_room(0, {});
  } catch (const Error& error) {
    stop_writing(error.what());
  }
}

bool PrefixStore::write(const PrefixFileInfo& info,
                        const std::function<void(PrefixFileWriter&)>& put) {
  if (!writes_) return false;
  const std::string file = path(info.name);
  try {
    PrefixFileWriter writer(file, info);
    put(writer);
    writer.commit();
  } catch (const Error& error) {
    if (written_by_another(file)) return true;
    stop_writing(error.what());
    return false;
  }
  ++stats_.files_written;
  stats_.bytes_written += info.file_bytes();
  return true;
}

bool is_worth_storing(const PrefixWorth& worth, const PrefixGain& gain) {
  const std::int64_t n_new = gain.n_tokens - gain.n_stored;
  if (gain.n_tokens < worth.min_tokens || n_new < worth.min_new) return false;
  if (gain.seconds_per_token <= 0) return true;
  return static_cast<double>(gain.n_tokens) * gain.seconds_per_token >
         static_cast<double>(gain.bytes) * worth.seconds_per_byte;
}

}  // namespace moeflux
