// How the texts of tokens become the bytes of output. All that the supported decoders do to one
// token alone is done once, when a vocabulary is loaded; what depends on the place in the output is
// leading_spaces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moeflux {

struct TokenDecoder {
  bool byte_level = false;     // visible characters stand for bytes
  bool byte_fallback = false;  // <0x0A> stands for a byte
  std::vector<std::pair<std::string, std::string>> replacements;  // what, by what
  std::size_t leading_spaces = 0;  // dropped from the start of output

  // A token with a character outside of the byte-level alphabet is literal text.
  std::string to_bytes(std::string_view token) const;
};

}  // namespace moeflux
