// Tokenizers and templates of more released models than ../shared has: in the folder that
// MOEFLUX_RELEASED names, as tools/text_data/README.md says.
#pragma once

#include <cstdlib>
#include <string>

namespace moeflux::test {

inline std::string released_folder() {  // "" without one
  const char* folder = std::getenv("MOEFLUX_RELEASED");
  return folder == nullptr ? "" : folder;
}

}  // namespace moeflux::test
