#include "convert/disk_space.h"

#include <cerrno>
#include <filesystem>
#include <map>
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
};

std::uint64_t still_needed(const DataFile& file) {
  struct stat info {};
  if (::stat(file.path.c_str(), &info) != 0) return file.bytes;
  const std::uint64_t has = static_cast<std::uint64_t>(info.st_blocks) * 512;
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

void check_disk_space(const std::vector<DataFile>& files, const FreeBytes& free) {
  std::map<dev_t, Drive> drives;
  for (const DataFile& file : files) {
    const std::string directory = std::filesystem::path(file.path).parent_path().string();
    struct stat info {};
    if (::stat(directory.c_str(), &info) != 0) {
      fail(Errc::Io, "{}: {}", directory, std::generic_category().message(errno));
    }
    Drive& drive = drives[info.st_dev];
    if (drive.directory.empty()) drive.directory = directory;
    drive.needed += still_needed(file);
  }
  for (const auto& [device, drive] : drives) {
    const std::uint64_t has = free(drive.directory);
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
