// Commands and options as users of llama.cpp and Ollama type them: what they are called here, or
// what there is instead.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moeflux::cli {

struct ForeignWord {
  std::string_view word;         // "--temperature"
  std::string_view ours;         // that means the same: "--temp"; "" where nothing does
  std::string_view advice = "";  // for a message: "; ..."
};

const std::vector<ForeignWord>& foreign_options();
const std::vector<ForeignWord>& foreign_commands();

// null where the word is none of them.
const ForeignWord* find_foreign(const std::vector<ForeignWord>& words, std::string_view word);

}  // namespace moeflux::cli
