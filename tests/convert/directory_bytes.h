// All files of a directory as bytes, to compare directories with.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/file.h"

namespace moeflux::test {

inline std::map<std::string, std::string> directory_bytes(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = std::filesystem::relative(entry.path(), directory).string();
    files[name] = read_text_file(entry.path().string());
  }
  return files;
}

}  // namespace moeflux::test
