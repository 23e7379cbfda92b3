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

  // A given value, as dump_json writes it.
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

}  // namespace moeflux
