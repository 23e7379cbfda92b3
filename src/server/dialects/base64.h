// Bytes as text that goes through JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moeflux {

std::string to_base64(std::string_view bytes);
// Nothing where the text is no base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace moeflux
