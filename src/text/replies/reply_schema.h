// What a JSON schema allows a value to be, for parameters that a model writes without quotes.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace moeflux {

// Sets of JSON types.
inline constexpr unsigned kJsonNull = 1;
inline constexpr unsigned kJsonBoolean = 2;
inline constexpr unsigned kJsonNumber = 4;
inline constexpr unsigned kJsonString = 8;
inline constexpr unsigned kJsonArray = 16;
inline constexpr unsigned kJsonObject = 32;
inline constexpr unsigned kJsonAny = 63;

// The types a value of `schema` can have; kJsonAny when it does not say. `root` is where "$ref"
// points into.
unsigned allowed_types(const Json& schema, const Json& root);

// The schema of a tool's parameters, or an empty object; `function` is the one of find_tool().
const Json& parameters_schema(const Json* function);
unsigned parameter_types(const Json& parameters, const std::string& name);

// The JSON for a value that a model wrote as plain text: the text itself where it is JSON of an
// allowed type, Python's True, False and None where those are meant, else a string.
std::string value_from_text(std::string_view text, unsigned types);

// The same for a value that comes in pieces. Where it can only be a string, or cannot be null any
// more, it is passed on as it comes.
class TextValueWriter {
 public:
  explicit TextValueWriter(unsigned types);

  // What each piece adds to the JSON.
  std::string add(std::string_view text);
  std::string end();
  std::string abandon();  // the value breaks off here: what there is of it, without an end

 private:
  enum class Kind { String, StringOrNull, Other };
  unsigned types_;
  Kind kind_;
  bool quoted_ = false;   // the opening quote is out
  std::string buffered_;  // unless it is passed on
};

}  // namespace moeflux
