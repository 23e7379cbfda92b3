// tokenizer.json writes its regular expressions in the dialect of Oniguruma; we match with PCRE2.
// The two agree on most of the syntax. This file rewrites what they read differently, so that the
// same text is split the same way: \s \w \h \b and POSIX classes (other character sets), scripts
// (PCRE2 means script extensions), nested classes and class intersections (PCRE2 10.42 has none),
// (?m), x{n,m}+ and x{,n}.
#pragma once

#include <string>
#include <string_view>

namespace moeflux {

// A pattern for PCRE2 with UTF, UCP and MULTILINE. Throws Unsupported for what has no equivalent
// and BadInput for what is not a pattern; `origin` names it in the message. PCRE2 itself judges the
// rest.
std::string to_pcre2_syntax(std::string_view pattern, std::string_view origin);

}  // namespace moeflux
