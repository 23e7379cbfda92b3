// Characters that have a normal form, or a place among marks, only since a version of Unicode that
// the tokenizers library does not know: its tables are of version 9. To it they are characters that
// nothing happens to.
#pragma once

namespace moeflux {

// Whether a later version decomposes the character, reorders it, or composes it with another one
// that follows.
bool has_late_normal_form(char32_t c);

}  // namespace moeflux
