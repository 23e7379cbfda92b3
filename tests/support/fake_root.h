// A directory that stands for "/": tests put the kernel's files there.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "support/paths.h"

namespace moeflux::test {

class FakeRoot {
 public:
  // `path` begins with a slash; directories are made as needed.
  void write(const std::string& path, const std::string& content) const {
    const std::filesystem::path place = directory_.path() + path;
    std::filesystem::create_directories(place.parent_path());
    std::ofstream(place, std::ios::binary) << content;
  }
  void make_directory(const std::string& path) const {
    std::filesystem::create_directories(directory_.path() + path);
  }
  const std::string& path() const { return directory_.path(); }

  // The unified hierarchy at /sys/fs/cgroup, this process in `group` of it.
  void unified(const std::string& group, const std::string& mounted = "/") const {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo",
          "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
          "30 22 0:26 " +
              mounted + " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
    make_directory("/sys/fs/cgroup");
  }

 private:
  TempDir directory_;
};

}  // namespace moeflux::test
