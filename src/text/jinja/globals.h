// The functions every template can call without being given them: range, namespace,
// raise_exception.
#pragma once

#include <string_view>

#include "text/jinja/runtime.h"

namespace moeflux::jinja {

// Undefined when there is no such function.
Value find_global(Runtime& runtime, std::string_view name);

}  // namespace moeflux::jinja
