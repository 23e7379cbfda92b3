// How long a model that nobody asks stays in memory, as clients and the command line say it.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "base/json.h"

namespace moeflux {

// None: for ever.
using KeepAlive = std::optional<std::chrono::milliseconds>;

inline constexpr std::chrono::minutes kDefaultKeepAlive{5};

// "5m", "1h30m", "90s", "500ms", "90" (seconds); negative: for ever. Throws Error(BadInput).
KeepAlive parse_keep_alive(std::string_view text);
// A text, or a number of seconds.
KeepAlive read_keep_alive(const Json& value);

}  // namespace moeflux
