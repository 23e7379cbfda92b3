// The `format` of strings in JSON schemas, as regular expressions.
#pragma once

#include <optional>
#include <string_view>

namespace moeflux {

// The pattern (pattern.h) that every generated text of this format has; nothing for a format that
// is not known. Where a standard allows more than is sensible to generate, the pattern allows less:
// all its texts are valid.
std::optional<std::string_view> format_pattern(std::string_view format);

// "date, time, ...": for messages.
std::string_view format_names();

}  // namespace moeflux
