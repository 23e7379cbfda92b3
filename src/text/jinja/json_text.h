// json.dumps() of Python, as the `tojson` filter of chat templates uses it.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/runtime.h"

namespace moeflux::jinja {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level of indentation; absent: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace moeflux::jinja
