// Where the tokenizers library knows another version of Unicode than utf8proc: its normal forms are
// of version 9, its punctuation is of version 8, and Rust's own numbers and lowercase letters are
// of version 17. The tables hold for every version of utf8proc up to that one.
#pragma once

namespace moeflux {

// Whether a version after 9 decomposes the character, reorders it, or composes it with another one
// that follows. To the library it is a character that nothing happens to.
bool has_late_normal_form(char32_t c);

bool is_late_punctuation(char32_t c);    // since a version after 8
bool is_former_punctuation(char32_t c);  // of version 8 and no more
bool is_late_number(char32_t c);         // since a version after 15
char32_t late_lowercase(char32_t c);     // the same, of letters; others are their own

}  // namespace moeflux
