// GBNF, the usual text notation of grammars for language models:
//
//   root  ::= item ("," ws item)*          # alternatives |, groups (), comments
//   item  ::= "text\n" | [a-z0-9_] | [^"\\\u00e4] | .
//   ws    ::= | " " | [ \t]{1,20}          # * + ? {n} {n,} {n,m}, and the empty alternative
//
// A rule ends with its line, except inside parentheses, after ::= and after |. Escapes in literals
// and classes: \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH. The text starts at rule `root`.
// docs/GRAMMAR.md describes the notation in full.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/grammar/grammar.h"

namespace moeflux {

// Rules that the text may use without defining them: a name, and the JSON schema whose values it
// stands for (json_schema.h).
using GbnfSchemas = std::map<std::string, Json>;

inline constexpr std::size_t kMaxGbnfBytes = 128u << 10;

// Throws BadInput with line and column; LimitExceeded for too much of anything.
Grammar parse_gbnf(std::string_view text, const GbnfSchemas& schemas = {});

}  // namespace moeflux
