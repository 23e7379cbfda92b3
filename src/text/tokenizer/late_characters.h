// Characters that came into Unicode after version 14, the one PCRE2 10.42 knows, up to version 16,
// the one tokenizers are made with. Without them a new emoji or ideograph would be cut differently.
#pragma once

#include <string>
#include <string_view>

namespace moeflux {

// The later characters of a general category ("L", "Lu", ..), as ranges for a bracket of a regular
// expression.
std::string late_characters(std::string_view category);

}  // namespace moeflux
