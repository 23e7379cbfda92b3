// The environment variables of the program: read here, once, and nowhere else. A command-line
// option always wins.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace moeflux::cli {

struct Environment {                      // a variable that is empty counts as not set
  std::optional<std::string> model;       // MOEFLUX_MODEL
  std::optional<std::string> ram;         // MOEFLUX_RAM
  std::optional<std::string> threads;     // MOEFLUX_THREADS
  std::optional<std::string> cpu_isa;     // MOEFLUX_CPU_ISA
  std::optional<std::string> api_key;     // MOEFLUX_API_KEY
  std::optional<std::string> no_color;    // NO_COLOR
  std::optional<std::string> cache_home;  // XDG_CACHE_HOME, else .cache in HOME
  std::optional<std::string> state_home;  // XDG_STATE_HOME, else .local/state in HOME
};
const Environment& environment();

// For `moeflux info` and the help.
struct EnvironmentVariable {
  const char* name;
  const char* meaning;
  std::optional<std::string> value;
};
std::vector<EnvironmentVariable> environment_variables();

}  // namespace moeflux::cli
