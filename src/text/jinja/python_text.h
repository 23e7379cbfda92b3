// How Python writes values: str() and repr(), on which templates rely when they print numbers,
// booleans, lists and dicts, and json.dumps(), which the `tojson` filter uses.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace moeflux::jinja {

// repr(float): the shortest digits that read back as the same number.
std::string float_repr(double number);

// str(value). A container that holds data is data as a whole.
MarkedString to_text(Runtime& runtime, const Value& value);

// repr(value), as inside of a printed list.
MarkedString to_repr(Runtime& runtime, const Value& value);

// Python's quoting of a string.
std::string string_repr(std::string_view text);

// Whether the value or anything in it came from outside.
bool holds_data(Runtime& runtime, const Value& value);

// &, <, >, ' and " as HTML entities.
MarkedString html_escape(Runtime& runtime, const MarkedString& text);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level of indentation; absent: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace moeflux::jinja
