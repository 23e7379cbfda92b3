// Text taken apart: numbers and lists.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace moeflux {

// The number that all of `text` is; nothing when it is something else or does not fit.
template <class Number>
std::optional<Number> to_number(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  const bool is_all = result.ec == std::errc() && result.ptr == end;
  return is_all ? std::optional(value) : std::nullopt;
}

// The parts between separators, empty ones too: "a,,b" has three, "" has one.
inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace moeflux
