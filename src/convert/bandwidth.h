// How fast a directory's drive reads, by a short measurement: what decides how much of every record
// a stripe gets.
#pragma once

#include <string>

namespace moeflux {

// Bytes a second of large sequential reads. Writes a temporary file of a few hundred megabytes at
// most, for about a second, and removes it. Throws Error when the directory cannot be written.
double measure_read_bandwidth(const std::string& directory);

}  // namespace moeflux
