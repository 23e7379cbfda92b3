// The `pattern` of a JSON schema: a regular expression (ECMA 262, the part that describes regular
// languages) as an expression of a grammar, for the text between the quotes of a JSON string.
//
// Supported: literals, . [..] \d \w \s and their complements, \n \t .. \xHH \uHHHH \u{..}, groups,
// alternation, * + ? {n,m} (also lazy), ^ at the beginning and $ at the end of the pattern or of
// its alternatives. Without them anything may stand before or after the match, as the standard
// says. Not supported: look-around, back references, \b, \p.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/grammar/json_pieces.h"

namespace moeflux {

struct PatternNode {
  enum class Kind { Set, Sequence, Choice, Repeat };
  Kind kind;
  CodePoints set = {};
  std::vector<PatternNode> parts = {};
  std::uint32_t min = 0, max = 0;
};

struct LengthRange {
  std::uint64_t min, max;  // characters; max may be Grammar::kUnbounded
};

// Throws BadInput or Unsupported; the message says what and where in the pattern.
PatternNode parse_pattern(std::string_view pattern);
LengthRange pattern_length(const PatternNode& node);

// The JSON string, quotes included, whose text matches and has a length in the range. Throws
// Unsupported when the pattern leaves the length open in a way that cannot be bounded.
ExprId add_pattern(Grammar& grammar, JsonPieces& pieces, PatternNode pattern,
                   const LengthRange& length);

}  // namespace moeflux
