#include "engine/measure/storage.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/stopwatch.h"
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

constexpr std::size_t kWriteBytes = std::size_t{4} << 20;

[[noreturn]] void fail_io(const std::string& directory, const char* what, int error) {
  fail(Errc::Io, "{}: cannot {} a test file: {}", directory, what,
       std::generic_category().message(error));
}

// Without a name from the start where the file system can do that, else removed at once.
Descriptor open_unnamed(const std::string& directory) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC;
  for (const int flags : {kFlags | O_DIRECT, kFlags}) {
    Descriptor file(::open(directory.c_str(), flags | O_TMPFILE, 0600));
    if (file.get() >= 0) return file;
  }
  std::string name = directory + "/.moeflux-test-XXXXXX";
  Descriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (file.get() < 0) fail_io(directory, "make", errno);
  ::unlink(name.c_str());
  // Refused where there is no direct I/O: then it is written through the page cache.
  static_cast<void>(::fcntl(file.get(), F_SETFL, O_DIRECT));
  return file;
}

void fill_random(std::span<std::byte> out, std::uint64_t& state) {
  for (std::size_t i = 0; i + sizeof(state) <= out.size(); i += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(out.data() + i, &state, sizeof(state));
  }
}

void write_all(int fd, std::span<const std::byte> bytes, std::uint64_t offset,
               const std::string& directory) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_io(directory, "write", n < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
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

TestFile::TestFile(const std::string& directory, const Options& options)
    : file_(open_unnamed(directory)), path_(fmt::format("/proc/self/fd/{}", file_.get())) {
  const HugeBuffer chunk(kWriteBytes);
  std::uint64_t random = 0x9E3779B97F4A7C15u;
  const auto start = std::chrono::steady_clock::now();
  while (bytes_ < options.bytes) {
    fill_random(chunk.bytes(), random);
    write_all(file_.get(), chunk.bytes(), bytes_, directory);
    bytes_ += kWriteBytes;
    if (options.progress) options.progress(bytes_);
    if (seconds_since(start) > options.max_seconds) break;
  }
  if (::fdatasync(file_.get()) != 0) fail_io(directory, "write", errno);
  ::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace moeflux
