// Whether the drives have room for what is to be written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convert/container_spec.h"

namespace moeflux {

using FreeBytes = std::function<std::uint64_t(const std::string& directory)>;

// What statvfs says that this user may still use.
std::uint64_t free_bytes(const std::string& directory);

// Throws Error(Io) with both numbers when a drive has less room than the files on it still take.
// Space that a file already has counts, also that of the files in `replaced`, which will be removed
// before anything is written. The directories must exist.
void check_disk_space(const std::vector<DataFile>& files, const FreeBytes& free,
                      const std::vector<std::string>& replaced = {});

}  // namespace moeflux
