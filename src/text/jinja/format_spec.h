// One value laid out by width, precision and type: the part that both ways of formatting share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace moeflux::jinja {

struct FormatSpec {
  char32_t fill = U' ';
  char align = '\0';  // '<', '>', '^', '=' or by type
  char sign = '-';    // '+', ' ' or '-'
  bool alternate = false;
  char grouping = '\0';  // ',' or '_'
  std::uint64_t width = 0;
  std::optional<int> precision;
  char type = '\0';
};

// Reads digits at `at` as a number; larger than any limit when there are too many of them.
std::uint64_t read_width(std::string_view text, std::size_t& at);

// Reads "[[fill]align][sign][#][0][width][,][.precision][type]".
FormatSpec parse_format_spec(std::string_view text);

// format(value, spec), for strings and numbers.
MarkedString format_value(Runtime& runtime, const Value& value, const FormatSpec& spec);

// The digits of a number, sign included, without padding; `spec.type` must fit the number.
std::string format_number(const Value& number, const FormatSpec& spec);

MarkedString pad(Runtime& runtime, const MarkedString& text, const FormatSpec& spec, char align);

}  // namespace moeflux::jinja
