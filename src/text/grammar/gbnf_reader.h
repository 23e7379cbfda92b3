// Characters of a GBNF text: position, blanks and comments, escapes. Errors say line and column.
#pragma once

#include <string>
#include <string_view>

#include "text/grammar/code_points.h"

namespace moeflux {

enum class Newlines { Skip, Stop };

class GbnfReader {
 public:
  explicit GbnfReader(std::string_view text);  // BadInput unless it is UTF-8

  bool at_end() const { return at_ >= text_.size(); }
  bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what);
  void skip_blanks(Newlines newlines);  // and comments

  std::string_view take_name();  // "" when there is none
  std::string take_literal();    // at the opening quote
  CodePoints take_class();       // at the opening bracket
  // A number of at most `max`; says what it is for when there is none.
  std::uint32_t take_number(std::uint32_t max, std::string_view what);

  std::size_t position() const { return at_; }
  [[noreturn]] void bad(std::string_view what) const { bad_at(at_, what); }
  [[noreturn]] void bad_at(std::size_t at, std::string_view what) const;

 private:
  char32_t take_character(std::string_view inside_of);
  char32_t take_hex(std::size_t digits);

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace moeflux
