// How the lexer reads numbers and strings: Python's literals, as far as Jinja has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moeflux::jinja {

struct NumberLiteral {
  std::size_t size = 0;  // bytes; 0 when the text does not begin with a number
  bool is_float = false;
  bool too_large = false;
  std::int64_t integer = 0;
  double real = 0;
};

NumberLiteral read_number(std::string_view text, bool integer_only);

// Bytes of the quoted string the text begins with, quotes included; 0 when there is none.
std::size_t string_literal_size(std::string_view text);

// Appends what the inside of a string literal means. Returns what is wrong, or nothing.
std::string unescape(std::string_view inside, std::string& text);

}  // namespace moeflux::jinja
