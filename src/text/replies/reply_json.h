// JSON that arrives in pieces: checked while it comes, and written where a model wrote plain text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace moeflux
