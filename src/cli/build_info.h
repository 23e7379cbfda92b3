// What this program is and what it runs on: for bug reports.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace moeflux::cli {

std::string version_line();     // "moeflux 0.1.0 (1a2b3c4, Release, g++ 12.2.0)"
std::string program_version();  // "0.1.0"
std::string program_commit();   // "" when it is not known
std::string build_type();
std::string compiler();
std::string package();  // what distribution's package this is: "0.1.0-1 (Debian)", or ""

// Everything above and the libraries it was built with.
std::string version_text();  // several lines, the first is version_line()
Json build_json();  // {"version", "commit", "type", "compiler", "package", "libraries": {}}

struct CpuInfo {
  std::string name;
  int n_cores = 0;                    // that this process may use
  std::vector<std::string> features;  // of those that matter for the kernels
};
CpuInfo cpu_info();

std::vector<std::string> backend_names();

}  // namespace moeflux::cli
