// The drives that a model is written to: how much room they have, and how fast they read.
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

// How fast the drive of a directory reads, by a short measurement; it decides how much of every
// record a stripe gets. Bytes a second of large sequential reads. Writes a temporary file of a few
// hundred megabytes at most, for about a second, and removes it. Throws Error when the directory
// cannot be written.
double measure_read_bandwidth(const std::string& directory);

}  // namespace moeflux
