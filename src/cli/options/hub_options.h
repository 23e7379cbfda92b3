// The hub as this program's environment describes it.
#pragma once

#include <string>

#include "hub/settings.h"

namespace moeflux::cli {

HubSettings hub_settings();        // throws Error
std::string hub_cache();           // the directory; may not exist
std::string hub_cache_if_there();  // "" where it does not

}  // namespace moeflux::cli
