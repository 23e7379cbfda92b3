#include "cli/options/environment.h"

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
  static const Environment read{.isa = variable("MOEFLUX_CPU_ISA"),
                                .config = variable("MOEFLUX_CONFIG"),
                                .no_color = variable("NO_COLOR"),
                                .home = variable("HOME"),
                                .cache_home = user_directory("XDG_CACHE_HOME", "/.cache"),
                                .state_home = user_directory("XDG_STATE_HOME", "/.local/state"),
                                .config_home = user_directory("XDG_CONFIG_HOME", "/.config")};
  return read;
}

std::optional<std::string> environment_value(const std::string& name) {
  return variable(name.c_str());
}

std::vector<EnvironmentVariable> environment_variables() {
  const Environment& values = environment();
  return {
      {"MOEFLUX_MODEL", "the model to use when a command names none", variable("MOEFLUX_MODEL")},
      {"MOEFLUX_MODELS", "directory of models that are called by name", variable("MOEFLUX_MODELS")},
      {"MOEFLUX_RAM", "ceiling for memory, as --ram", variable("MOEFLUX_RAM")},
      {"MOEFLUX_DEVICE", "what computes, as --device", variable("MOEFLUX_DEVICE")},
      {"MOEFLUX_VRAM", "ceiling for memory of the GPU, as --vram", variable("MOEFLUX_VRAM")},
      {"MOEFLUX_THREADS", "threads to compute with, as --threads", variable("MOEFLUX_THREADS")},
      {"MOEFLUX_CPU_ISA", "force kernels: scalar, avx2, avx512vnni, ...", values.isa},
      {"MOEFLUX_API_KEY", "the key serve asks for and chat gives, as --api-key",
       variable("MOEFLUX_API_KEY") ? std::optional<std::string>("(set)") : std::nullopt},
      {"MOEFLUX_SERVER", "the server that chat and ps ask, as --server",
       variable("MOEFLUX_SERVER")},
      {"MOEFLUX_CONFIG", "the configuration file, as --config", values.config},
      {"HF_ENDPOINT", "the hub that pull and plan ask", variable("HF_ENDPOINT")},
      {"HF_TOKEN", "the token for it (default: the file of HF_TOKEN_PATH)",
       variable("HF_TOKEN") ? std::optional<std::string>("(set)") : std::nullopt},
      {"HF_TOKEN_PATH", "file with the token (default: token in HF_HOME)",
       variable("HF_TOKEN_PATH")},
      {"HF_HOME", "where the hub's tools keep things (default: huggingface in XDG_CACHE_HOME)",
       variable("HF_HOME")},
      {"HF_HUB_CACHE", "where pulled models are kept (default: hub in HF_HOME)",
       variable("HF_HUB_CACHE")},
      {"https_proxy", "the proxy to it, as http://HOST:PORT; no_proxy names exceptions",
       variable("https_proxy") ? std::optional<std::string>("(set)") : std::nullopt},
      {"XDG_CONFIG_HOME", "where moeflux/config.toml is looked for (default: ~/.config)",
       values.config_home},
      {"XDG_CACHE_HOME", "where usage profiles and the prefix store are kept (default: ~/.cache)",
       values.cache_home},
      {"XDG_STATE_HOME", "where chats and their history are kept (default: ~/.local/state)",
       values.state_home},
      {"VISUAL", "the editor that /edit of a chat opens, else EDITOR, else vi",
       variable("VISUAL") ? variable("VISUAL") : variable("EDITOR")},
      {"NO_COLOR", "set to anything: no colours", values.no_color}};
}

}  // namespace moeflux::cli
