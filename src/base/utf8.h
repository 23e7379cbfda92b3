// UTF-8 as untrusted input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moeflux {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// One step of decoding. `length` is 1..4 bytes when `valid`, otherwise the length of the ill-formed
// part that one U+FFFD replaces (Unicode's "maximal subpart" rule, as Python and the browsers do
// it).
struct Utf8Step {
  char32_t code_point;
  std::size_t length;
  bool valid;
  bool truncated;  // invalid only because the text ends here: more bytes could complete it
};
Utf8Step decode_utf8(std::string_view text, std::size_t at);

// Byte offset of the first ill-formed sequence, or npos.
std::size_t find_invalid_utf8(std::string_view text);

std::string replace_invalid_utf8(std::string_view text);

void append_utf8(std::string& out, char32_t code_point);

}  // namespace moeflux
