// Regular expressions as ECMA 262 writes them (what `pattern` of a JSON schema is), as trees.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"

namespace moeflux {

struct PatternNode {
  enum class Kind {
    Set,       // one character
    Sequence,  // empty: the empty text
    Choice,
    Repeat,  // parts[0], min to max times
    Start,   // ^
    End,     // $
    Ahead,   // (?=parts[0]), negated: (?!parts[0])
    Border,  // \b, negated: \B
  };
  Kind kind;
  CodePoints set = {};
  std::vector<PatternNode> parts = {};
  std::uint32_t min = 0, max = 0;
  bool negated = false;
};

using PatternKind = PatternNode::Kind;

// Throws BadInput for what is no pattern, Unsupported for what describes no regular language (back
// references) or is not known here (look-behind, scripts), saying what and where.
PatternNode parse_pattern(std::string_view pattern);

// Also in groups and repetitions of the node.
bool contains_kind(const PatternNode& node, PatternNode::Kind kind);

CodePoints pattern_word_characters();  // \w

// \p{...}: a general category (L, Lu, Letter), and the properties of emoji; nothing for others.
std::optional<CodePoints> unicode_property(std::string_view name);

}  // namespace moeflux
