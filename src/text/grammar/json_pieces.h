// The parts JSON text is made of, as expressions of a grammar.
//
// Blanks are bounded, so that a model cannot write them for ever: after { [ , and before } ]
// nothing, one space, or a newline with an indentation; after : nothing or one space.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/grammar/grammar.h"
#include "text/grammar/text_language.h"

namespace moeflux {

enum class JsonBlanks { Some, None };

class JsonPieces {
 public:
  JsonPieces(Grammar& grammar, JsonBlanks blanks);

  ExprId blank() { return grammar_.rule(blank_); }  // inside of brackets
  ExprId space() { return space_; }                 // after a colon
  ExprId string(std::uint32_t min_length, std::uint32_t max_length);
  ExprId number();
  ExprId integer();
  ExprId any_value() { return grammar_.rule(any_value_rule()); }
  ExprId any_object() { return grammar_.rule(any_object_rule()); }

  // A given value; its numbers and strings as dump_json writes them.
  ExprId value(const Json& json);
  // One character of a set inside of a string, escaped where JSON asks for it.
  ExprId character(const CodePoints& set);
  // "name": and what follows up to the value.
  ExprId key(std::string_view name);
  // The same for any name but these.
  ExprId other_key(const std::vector<std::string>& names);

  // item ("," item)* between brackets; min to max items.
  ExprId list(std::string_view open, ExprId item, std::uint32_t min, std::uint32_t max,
              std::string_view close);
  // "," and what may stand before the next item.
  ExprId comma() { return comma_; }

 private:
  RuleId any_value_rule();
  RuleId any_object_rule();
  RuleId any_character();
  ExprId other_than(const std::vector<std::u32string>& names, std::size_t at);

  Grammar& grammar_;
  RuleId blank_;
  ExprId space_, comma_;
  std::optional<RuleId> value_, object_, character_, key_character_;
};

// ---- the `pattern` and the `format` of strings (pattern.cpp)
//
// A pattern is a regular expression (ECMA 262, the part that describes regular languages) for the
// text between the quotes of a JSON string. Supported: literals, . [..] \d \w \s \p{..} and their
// complements, \n \t .. \xHH \uHHHH \u{..}, groups, alternation, * + ? {n,m} (also lazy), ^ $ \b
// and look-ahead. Without ^ and $ anything may stand before or after the match, as the standard
// says. Not supported: look-behind, back references, endless repetitions of what looks around.

struct LengthRange {
  std::uint64_t min, max;  // characters; max may be Grammar::kUnbounded
};

// The JSON string, quotes included, whose text matches and has a length in the range. Throws
// BadInput, Unsupported, or LimitExceeded for a pattern that takes too many states; the message
// says what and where in the pattern.
ExprId add_pattern(Grammar& grammar, JsonPieces& pieces, std::string_view pattern,
                   const LengthRange& length);

// `"`, a text of the language and `end` ("\"" for a string). Nothing() of the grammar when there is
// none. Throws LimitExceeded.
inline constexpr std::size_t kMaxTextStates = 5000;
ExprId add_texts(Grammar& grammar, JsonPieces& pieces, TextLanguages& languages, LanguageId texts,
                 std::string_view end);

// The pattern that every generated text of this format has; nothing for a format that
// is not known. Where a standard allows more than is sensible to generate, the pattern allows less:
// all its texts are valid.
std::optional<std::string_view> format_pattern(std::string_view format);

// ---- numbers between two bounds, in decimal without exponent (decimal_range.cpp)
//
// Exact, by comparing digits from the left.

struct DecimalBound {
  Json value;  // a number
  bool exclusive = false;
};

struct DecimalRange {
  std::optional<DecimalBound> low = {}, high = {};
  bool integer = false;
  std::uint32_t max_fraction = 6;  // digits after the point; more where a bound has more
};

// Nothing() of the grammar when no number lies between. Throws Unsupported for bounds outside of
// what is generated (18 digits for integers, 15 before the point for others).
ExprId add_decimal_range(Grammar& grammar, const DecimalRange& range);

}  // namespace moeflux
