#include "cli/environment.h"

#include <cstdlib>

namespace moeflux::cli {
namespace {

std::optional<std::string> variable(const char* name) {
  // Nothing in this program changes its environment.
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

// A directory of the user: where the variable says, else below HOME.
std::optional<std::string> user_directory(const char* name, const char* below_home) {
  if (const auto given = variable(name)) return given;
  const auto home = variable("HOME");
  return home ? std::optional(*home + below_home) : std::nullopt;
}

}  // namespace

const Environment& environment() {
  static const Environment read{.model = variable("MOEFLUX_MODEL"),
                                .ram = variable("MOEFLUX_RAM"),
                                .threads = variable("MOEFLUX_THREADS"),
                                .cpu_isa = variable("MOEFLUX_CPU_ISA"),
                                .api_key = variable("MOEFLUX_API_KEY"),
                                .no_color = variable("NO_COLOR"),
                                .cache_home = user_directory("XDG_CACHE_HOME", "/.cache"),
                                .state_home = user_directory("XDG_STATE_HOME", "/.local/state")};
  return read;
}

std::vector<EnvironmentVariable> environment_variables() {
  const Environment& values = environment();
  return {
      {"MOEFLUX_MODEL", "the model to use when a command names none", values.model},
      {"MOEFLUX_RAM", "ceiling for memory, as --ram", values.ram},
      {"MOEFLUX_THREADS", "threads to compute with, as --threads", values.threads},
      {"MOEFLUX_CPU_ISA", "force kernels: scalar, avx2, avx512vnni, ...", values.cpu_isa},
      {"MOEFLUX_API_KEY", "the key serve asks for, as --api-key",
       values.api_key ? std::optional<std::string>("(set)") : std::nullopt},
      {"XDG_CACHE_HOME", "where usage profiles and the prefix store are kept (default: ~/.cache)",
       values.cache_home},
      {"XDG_STATE_HOME", "where chats and their history are kept (default: ~/.local/state)",
       values.state_home},
      {"NO_COLOR", "set to anything: no colours", values.no_color}};
}

}  // namespace moeflux::cli
