// The environment variables of the program: read here and nowhere else. Those that set an option
// are declared with it (Command::env()) and reach the command through it; the others are members of
// Environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace moeflux::cli {

struct Environment {                       // a variable that is empty counts as not set
  std::optional<std::string> isa;          // MOEFLUX_CPU_ISA
  std::optional<std::string> config;       // MOEFLUX_CONFIG
  std::optional<std::string> no_color;     // NO_COLOR
  std::optional<std::string> home;         // HOME
  std::optional<std::string> cache_home;   // XDG_CACHE_HOME, else .cache in HOME
  std::optional<std::string> state_home;   // XDG_STATE_HOME, else .local/state in HOME
  std::optional<std::string> config_home;  // XDG_CONFIG_HOME, else .config in HOME
};
const Environment& environment();

// One variable by its name, for an option that declares it.
std::optional<std::string> environment_value(const std::string& name);

// For `moeflux info` and the help.
struct EnvironmentVariable {
  const char* name;
  const char* meaning;
  std::optional<std::string> value;
};
std::vector<EnvironmentVariable> environment_variables();

}  // namespace moeflux::cli
