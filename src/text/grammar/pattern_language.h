// Patterns of strings as languages over characters.
#pragma once

#include <string_view>

#include "text/grammar/pattern_syntax.h"
#include "text/grammar/text_language.h"

namespace moeflux {

// All texts in which the pattern matches somewhere (everywhere it may, where it has no ^ and $).
// Throws what parse_pattern() throws, and Unsupported for what looks around in a way that is not
// known here.
LanguageId pattern_language(TextLanguages& languages, std::string_view pattern);

}  // namespace moeflux
