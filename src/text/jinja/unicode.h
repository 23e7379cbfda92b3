// Characters as Python's str sees them: code points, their classes and their case, over UTF-8
// bytes. A byte that is no UTF-8 counts as one character and stays as it is.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moeflux::jinja {

struct CodePoint {
  char32_t value;    // the byte itself when it is no UTF-8; `valid` tells
  std::size_t size;  // bytes
  bool valid;
};

// `at` must be inside of `text`.
CodePoint decode(std::string_view text, std::size_t at);
// The character that ends before byte `end`; `end` must not be 0.
CodePoint decode_before(std::string_view text, std::size_t end);

std::size_t count_characters(std::string_view text);
// The byte where character `index` begins; the size of the text when there are not that many.
std::size_t byte_of_character(std::string_view text, std::size_t index);

bool is_space(char32_t c);  // str.isspace, and \s of Python's re
// Where the whitespace at byte `at` ends, and where that before byte `end` begins.
std::size_t skip_spaces(std::string_view text, std::size_t at);
std::size_t skip_spaces_back(std::string_view text, std::size_t end);
bool is_alpha(char32_t c);
bool is_digit(char32_t c);
bool is_alnum(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_printable(char32_t c);

enum class Case { Upper, Lower, Title };
// The character in that case; one may become several.
std::string to_case(char32_t c, Case wanted);

}  // namespace moeflux::jinja
