// What a mistyped word was meant to be, as commands say it.
#pragma once

#include "base/suggestion.h"

namespace moeflux::cli {

using moeflux::closest;

}  // namespace moeflux::cli
