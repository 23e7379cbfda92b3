// The byte-level alphabet: each of the 256 bytes is written as one printable character, so that a
// vocabulary of byte strings can live in JSON. Bytes 33-126, 161-172 and 174-255 stand for
// themselves; the other 68, in ascending order, are written as U+0100, U+0101, ... (a space is
// U+0120, a newline U+010A).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moeflux {

// The visible form of any bytes.
std::string bytes_to_visible(std::string_view bytes);

// The bytes behind a visible form; nothing when a character is outside of the alphabet.
std::optional<std::string> visible_to_bytes(std::string_view visible);

}  // namespace moeflux
