// JSON of a reply: checked while it arrives in pieces, and made from the plain text that some
// formats write for parameters, by what their schemas allow.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace moeflux {

inline bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// One JSON value, byte by byte. What models get wrong without doubt about what they mean is put
// right: control characters in a string are escaped.
class JsonScanner {
 public:
  enum class Step {
    More,
    Done,        // the value ends with this byte
    DoneBefore,  // the value (a number) has ended before this byte, which is not taken
    Bad,         // not JSON, or nested deeper than 256; this byte is not taken
  };
  // Appends to `out` what a strict parser reads.
  Step feed(char c, std::string& out);

 private:
  enum class State {
    Value,
    ArrayStart,
    ObjectStart,
    Key,
    Colon,
    AfterValue,
    String,
    Escape,
    Hex,
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
    Literal,
  };
  Step blank(char c, std::string& out) const;
  Step begin_value(char c, std::string& out);
  Step open(char c, State next, std::string& out);
  Step close(char c, std::string& out);
  Step after_value(char c, std::string& out);
  Step string(char c, std::string& out);
  Step number(char c, std::string& out);
  Step value_done();
  bool number_may_end() const;
  State number_after(char c, bool& bad) const;

  State state_ = State::Value;
  std::vector<char> open_;    // '{' and '['
  bool is_key_ = false;       // of the string being read
  int n_hex_ = 0;             // digits of \uXXXX still to come
  std::string_view literal_;  // what remains of true, false or null
};

// The inside of a JSON string for `text`, without quotes. May be done piece by piece.
void append_json_escaped(std::string& out, std::string_view text);
std::string json_string(std::string_view text);  // with quotes

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
