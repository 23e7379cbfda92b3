// The stack that the program runs on.
#pragma once

#include <string>

namespace moeflux::cli {

// Sees to it that this thread, and those it will start, have stack enough. To be called first: with
// a tiny limit (ulimit -s) the program would end at some deep call without a word. Returns what is
// wrong, or "".
std::string ensure_stack();

}  // namespace moeflux::cli
