// Named character sets of a regular expression: \s, \w, \p{Letter}, [:alpha:], as items of a PCRE2
// bracket. Part of to_pcre2_syntax(). Checked against Oniguruma for every code
// point.
#pragma once

#include <string>
#include <string_view>

namespace moeflux {

std::string space_items();      // \s
std::string not_space_items();  // its complement as ranges: a bracket cannot hold a negated set
std::string word_items();       // \w in a bracket
std::string standalone_word_items();  // \w outside of one; they differ
std::string hex_digit_items();        // \h
std::string digit_items();            // \d

// The items of a POSIX bracket ([:name:]); empty when there is no such name.
std::string posix_items(std::string_view name);

// The items of \p{name}. A name that is nothing else is taken for a script; PCRE2 knows whether it
// is one.
std::string property_items(std::string_view name);

}  // namespace moeflux
