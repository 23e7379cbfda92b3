#include "convert/disk_space.h"

#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/error.h"
#include "base/memory_budget.h"

namespace moeflux {
namespace {

// For the manifest, the tokenizer and what the filesystem itself needs.
constexpr std::uint64_t kMargin = 64u << 20;

struct Drive {
  std::string directory;
  std::uint64_t needed = 0;
  std::uint64_t to_come = 0;  // from files that are removed first
};

struct OnDisk {
  dev_t device = 0;
  std::uint64_t bytes = 0;
};

std::optional<OnDisk> find_on_disk(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return OnDisk{info.st_dev, static_cast<std::uint64_t>(info.st_blocks) * 512};
}

std::uint64_t still_needed(const DataFile& file) {
  const std::uint64_t has = find_on_disk(file.path).value_or(OnDisk()).bytes;
  return has < file.bytes ? file.bytes - has : 0;
}

}  // namespace

std::uint64_t free_bytes(const std::string& directory) {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) {
    fail(Errc::Io, "{}: cannot tell how much space is free: {}", directory,
         std::generic_category().message(errno));
  }
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

void check_disk_space(const std::vector<DataFile>& files, const FreeBytes& free,
                      const std::vector<std::string>& replaced) {
  std::map<dev_t, Drive> drives;
  for (const DataFile& file : files) {
    const std::string directory = std::filesystem::path(file.path).parent_path().string();
    struct stat info {};
    if (::stat(directory.c_str(), &info) != 0) {
      fail(Errc::Io, "{}: {}", directory, std::generic_category().message(errno));
    }
    Drive& drive = drives[info.st_dev];
    if (drive.directory.empty()) drive.directory = directory;
    drive.needed += replaced.empty() ? still_needed(file) : file.bytes;
  }
  for (const std::string& path : replaced) {
    const std::optional<OnDisk> old = find_on_disk(path);
    if (old && drives.contains(old->device)) drives[old->device].to_come += old->bytes;
  }
  for (const auto& [device, drive] : drives) {
    const std::uint64_t has = free(drive.directory) + drive.to_come;
    if (drive.needed > 0 && drive.needed + kMargin > has) {
      fail(Errc::Io,
           "{}: the container needs {} more here ({} bytes), but only {} are free; make room or "
           "choose another drive",
           drive.directory, format_bytes(drive.needed + kMargin), drive.needed + kMargin,
           format_bytes(has));
    }
  }
}

}  // namespace moeflux
