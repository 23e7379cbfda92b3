#include "cli/options/hub_options.h"

#include "base/file.h"
#include "cli/options/environment.h"

namespace moeflux::cli {

HubSettings hub_settings() {
  return read_hub_settings(environment_value);
}

std::string hub_cache() {
  return hub_cache_directory(environment_value);
}

std::string hub_cache_if_there() {
  std::string directory = hub_cache();
  return directory_exists(directory) ? directory : "";
}

}  // namespace moeflux::cli
