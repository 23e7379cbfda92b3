// What a file lies on: the file system, the drive below it, and how direct reads must be aligned;
// and a file to measure a drive with. A description holds no path and no serial number. What cannot
// be found out is empty or unset.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "io/file_set.h"

namespace moeflux {

struct DriveDescription {
  std::string name;   // as the kernel calls it: "nvme0n1", "dm-0"; empty: not a local drive
  std::string model;  // as the maker calls it
  std::optional<bool> rotational;  // unset for a virtual one
  std::string link;                // of a drive on PCI Express: "16.0 GT/s x4"
  std::string best_link;  // what drive and slot could agree on, when that is more than `link`
  std::uint64_t max_request_bytes = 0;  // larger reads are split
};

struct StorageDescription {
  std::string file_system;  // "ext4"
  std::uint64_t free_bytes = 0;
  FileAlignment alignment;  // {1, 1}: reads go through the page cache
  DriveDescription drive;
};

// Of an existing file or directory. The alignment is that of the file; of a directory it stays
// unset. Throws nothing but bad_alloc.
StorageDescription describe_storage(const std::string& path, const std::string& root = "/");

// Of the block device with this number.
DriveDescription describe_drive(unsigned major, unsigned minor, const std::string& root = "/");

// The name of a file system type of statfs(2); "" for one we do not know.
std::string file_system_name(std::uint64_t magic);

// A file to measure a drive with: filled with bytes that no file system can make smaller, and
// without a name, so that nothing is left of it however the program ends.
class TestFile {
 public:
  struct Options {
    std::uint64_t bytes = std::uint64_t{1} << 30;
    double max_seconds = 4;                         // of writing; what is there by then must do
    std::function<void(std::uint64_t)> progress{};  // bytes so far; may throw to give up
  };

  // Written past the page cache where that is possible. Throws Error(Io) naming `directory`.
  TestFile(const std::string& directory, const Options& options);

  const std::string& path() const { return path_; }  // valid in this process, while this lives
  std::uint64_t bytes() const { return bytes_; }

 private:
  Descriptor file_;
  std::string path_;
  std::uint64_t bytes_ = 0;
};

}  // namespace moeflux
