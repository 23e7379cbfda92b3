// What a mistyped word was meant to be.
#pragma once

#include <string>
#include <vector>

namespace moeflux {

// The candidate that differs from `word` by few typing errors, or "" when none is close enough to
// be more than a guess.
std::string closest(const std::string& word, const std::vector<std::string>& candidates);

// "; did you mean serve?" for the end of a message, or "".
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace moeflux
