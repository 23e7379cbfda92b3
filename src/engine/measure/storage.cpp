#include "engine/measure/storage.h"

#include <array>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "base/error.h"
#include "base/system_file.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

struct KnownFileSystem {
  std::uint64_t magic;
  const char* name;
};
constexpr std::array kFileSystems = {
    KnownFileSystem{0xEF53, "ext4"},         KnownFileSystem{0x58465342, "xfs"},
    KnownFileSystem{0x9123683E, "btrfs"},    KnownFileSystem{0x2FC12FC1, "zfs"},
    KnownFileSystem{0xF2F52010, "f2fs"},     KnownFileSystem{0xCA451A4E, "bcachefs"},
    KnownFileSystem{0x01021994, "tmpfs"},    KnownFileSystem{0x858458F6, "ramfs"},
    KnownFileSystem{0x794C7630, "overlay"},  KnownFileSystem{0x6969, "nfs"},
    KnownFileSystem{0xFF534D42, "cifs"},     KnownFileSystem{0xFE534D42, "smb2"},
    KnownFileSystem{0x65735546, "fuse"},     KnownFileSystem{0x01021997, "9p"},
    KnownFileSystem{0x6A656A63, "virtiofs"}, KnownFileSystem{0x4D44, "vfat"},
    KnownFileSystem{0x2011BAB0, "exfat"},    KnownFileSystem{0x7366746E, "ntfs"},
    KnownFileSystem{0x5346544E, "ntfs"},     KnownFileSystem{0xE0F5E1E2, "erofs"},
    KnownFileSystem{0x73717368, "squashfs"}, KnownFileSystem{0x00C36400, "ceph"},
    KnownFileSystem{0x0BD00BD0, "lustre"},   KnownFileSystem{0x47504653, "gpfs"},
};

// Virtual drives say they rotate when nobody told them otherwise.
bool is_virtual(std::string_view drive) {
  return drive.substr(0, 2) == "vd" || drive.substr(0, 3) == "xvd";
}

// The whole drive of a partition, and the first drive below a mapped or joined one.
fs::path whole_drive(fs::path device) {
  std::error_code error;
  for (int depth = 0; depth < 8; ++depth) {
    if (fs::exists(device / "partition", error)) {
      device = device.parent_path();
      continue;
    }
    const fs::directory_iterator below(device / "slaves", error);
    if (error || below == fs::directory_iterator()) break;
    const fs::path next = fs::canonical(below->path(), error);
    if (error) break;
    device = next;
  }
  return device;
}

// "16.0 GT/s PCIe" and "4" make "16.0 GT/s x4".
std::string link_text(const fs::path& slot, const std::string& which) {
  const std::string speed = read_system_line(slot / (which + "_link_speed"));
  const std::string width = read_system_line(slot / (which + "_link_width"));
  if (speed.empty() || width.empty() || speed.rfind("Unknown", 0) == 0) return "";
  const std::size_t end = speed.find(" PCIe");
  return fmt::format("{} x{}", speed.substr(0, end), width);
}

void describe_link(const fs::path& drive, DriveDescription& description) {
  std::error_code error;
  // An NVMe drive is a child of its controller, which is a child of its slot.
  for (const char* up : {"device/device", "device"}) {
    const fs::path slot = fs::canonical(drive / up, error);
    if (error) continue;
    description.link = link_text(slot, "current");
    if (description.link.empty()) continue;
    const std::string best = link_text(slot, "max");
    if (best != description.link) description.best_link = best;
    return;
  }
}

// The device of a file system that numbers itself (btrfs, overlay, zfs): that of its mount, when
// the mount names one.
std::optional<std::pair<unsigned, unsigned>> mounted_device(unsigned major, unsigned minor,
                                                            const std::string& root) {
  const auto mounts = read_system_file(under_root(root, "/proc/self/mountinfo"));
  const std::string number = fmt::format("{}:{}", major, minor);
  for (const std::string_view line : split_lines(mounts ? *mounts : std::string_view())) {
    const std::vector<std::string_view> words = split_words(line);
    if (words.size() < 10 || words[2] != number) continue;
    for (std::size_t i = 6; i + 2 < words.size(); ++i) {
      if (words[i] != "-" || words[i + 2].substr(0, 5) != "/dev/") continue;
      struct stat info {};
      const std::string device = under_root(root, words[i + 2]);
      if (::stat(device.c_str(), &info) != 0 || !S_ISBLK(info.st_mode)) continue;
      return std::pair(gnu_dev_major(info.st_rdev), gnu_dev_minor(info.st_rdev));
    }
  }
  return std::nullopt;
}

}  // namespace

std::string file_system_name(std::uint64_t magic) {
  for (const KnownFileSystem& known : kFileSystems) {
    if (known.magic == magic) return known.name;
  }
  return "";
}

DriveDescription describe_drive(unsigned major, unsigned minor, const std::string& root) {
  DriveDescription description;
  std::error_code error;
  const fs::path device =
      fs::canonical(under_root(root, fmt::format("/sys/dev/block/{}:{}", major, minor)), error);
  if (error) return description;
  const fs::path drive = whole_drive(device);
  description.name = drive.filename();
  description.model = read_system_line(drive / "device/model");
  const auto rotational = read_system_number(drive / "queue/rotational");
  if (rotational && !is_virtual(description.name)) description.rotational = *rotational != 0;
  const auto kib = read_system_number(drive / "queue/max_sectors_kb");
  if (kib && *kib < (std::uint64_t{1} << 40)) description.max_request_bytes = *kib * 1024;
  describe_link(drive, description);
  return description;
}

StorageDescription describe_storage(const std::string& path, const std::string& root) {
  StorageDescription storage;
  struct statfs system {};
  if (::statfs(path.c_str(), &system) == 0) {
    storage.file_system = file_system_name(static_cast<std::uint32_t>(system.f_type));
    storage.free_bytes =
        static_cast<std::uint64_t>(system.f_bavail) * static_cast<std::uint64_t>(system.f_bsize);
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return storage;
  unsigned major = gnu_dev_major(info.st_dev), minor = gnu_dev_minor(info.st_dev);
  if (major == 0) {
    if (const auto device = mounted_device(major, minor, root)) std::tie(major, minor) = *device;
  }
  if (major != 0) storage.drive = describe_drive(major, minor, root);
  if (S_ISREG(info.st_mode)) {
    try {
      storage.alignment = FileSet({path}, true).alignment(0);
    } catch (const Error&) {
      // What keeps it from being opened is reported by whoever reads it.
    }
  }
  return storage;
}

}  // namespace moeflux
