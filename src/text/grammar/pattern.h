// The `pattern` and the `format` of strings in a JSON schema, as expressions of a grammar.
//
// A pattern is a regular expression (ECMA 262, the part that describes regular languages) for the
// text between the quotes of a JSON string. Supported: literals, . [..] \d \w \s and their
// complements, \n \t .. \xHH \uHHHH \u{..}, groups, alternation, * + ? {n,m} (also lazy), ^ at the
// start and $ at the end of the pattern or of its alternatives. Without them anything may stand
// before or after the match, as the standard says. Not supported: look-around, back references, \b,
// \p.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "text/grammar/json_pieces.h"

namespace moeflux {

struct LengthRange {
  std::uint64_t min, max;  // characters; max may be Grammar::kUnbounded
};

// The JSON string, quotes included, whose text matches and has a length in the range. Throws
// BadInput, or Unsupported (also when the pattern leaves the length open in a way that cannot be
// bounded); the message says what and where in the pattern.
ExprId add_pattern(Grammar& grammar, JsonPieces& pieces, std::string_view pattern,
                   const LengthRange& length);

// The pattern that every generated text of this format has; nothing for a format that
// is not known. Where a standard allows more than is sensible to generate, the pattern allows less:
// all its texts are valid.
std::optional<std::string_view> format_pattern(std::string_view format);

// "date, time, ...": for messages.
std::string_view format_names();

}  // namespace moeflux
