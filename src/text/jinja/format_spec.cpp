#include "text/jinja/format_spec.h"

#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace moeflux::jinja {
namespace {

constexpr int kMaxPrecision = 1000;  // no number has more digits that matter

bool is_align(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

std::string group_digits(const std::string& digits, char separator, std::size_t every) {
  std::string grouped;
  const std::size_t whole = std::min(digits.find('.'), digits.size());
  for (std::size_t i = 0; i < whole; ++i) {
    if (i != 0 && (whole - i) % every == 0) grouped += separator;
    grouped += digits[i];
  }
  return grouped + digits.substr(whole);
}

std::string magnitude_text(std::uint64_t magnitude, const FormatSpec& spec) {
  const bool prefixed = spec.alternate && spec.type != 'd' && spec.type != '\0';
  const std::string prefix = prefixed ? fmt::format("0{}", spec.type) : "";
  switch (spec.type) {
    case 'x':
      return prefix + fmt::format("{:x}", magnitude);
    case 'X':
      return prefix + fmt::format("{:X}", magnitude);
    case 'o':
      return prefix + fmt::format("{:o}", magnitude);
    case 'b':
      return prefix + fmt::format("{:b}", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

std::string real_text(double magnitude, const FormatSpec& spec) {
  if (!std::isfinite(magnitude)) {
    const std::string text = std::isnan(magnitude) ? "nan" : "inf";
    return spec.type == 'F' || spec.type == 'E' || spec.type == 'G'
               ? (std::isnan(magnitude) ? "NAN" : "INF")
               : text;
  }
  if (spec.type == '\0' && !spec.precision) return float_repr(magnitude);
  const int precision = std::min(spec.precision.value_or(6), kMaxPrecision);
  switch (spec.type) {
    case 'e':
      return fmt::format("{:.{}e}", magnitude, precision);
    case 'E':
      return fmt::format("{:.{}E}", magnitude, precision);
    case 'g':
    case '\0':
      return fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
    case 'G':
      return fmt::format("{:.{}G}", magnitude, std::max(precision, 1));
    case '%':
      return fmt::format("{:.{}f}%", magnitude * 100, precision);
    default:
      return fmt::format("{:.{}f}", magnitude, precision);
  }
}

bool is_integer_type(char type) {
  return std::string_view("dbxXo").find(type) != std::string_view::npos;
}
bool is_real_type(char type) {
  return std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

}  // namespace

std::uint64_t read_width(std::string_view text, std::size_t& at) {
  std::uint64_t width = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    width = std::min<std::uint64_t>(width * 10 + static_cast<std::uint64_t>(text[at] - '0'),
                                    std::uint64_t{1} << 40);
  }
  return width;
}

FormatSpec parse_format_spec(std::string_view text) {
  FormatSpec spec;
  std::size_t at = 0;
  if (!text.empty()) {
    const std::size_t fill = decode(text, 0).size;
    if (fill < text.size() && is_align(text[fill])) {
      spec.fill = decode(text, 0).value;
      spec.align = text[fill];
      at = fill + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  const auto take = [&](std::string_view any_of) {
    if (at == text.size() || any_of.find(text[at]) == std::string_view::npos) return '\0';
    return text[at++];
  };
  if (const char sign = take("+- "); sign != '\0') spec.sign = sign;
  spec.alternate = take("#") != '\0';
  if (take("0") != '\0' && spec.align == '\0') {
    spec.fill = U'0';
    spec.align = '=';
  }
  spec.width = read_width(text, at);
  spec.grouping = take(",_");
  if (take(".") != '\0') {
    spec.precision = static_cast<int>(std::min<std::uint64_t>(read_width(text, at), 1u << 30));
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (at != text.size()) fail(Errc::BadInput, "invalid format specifier '{}'", text);
  if (spec.type == 'n') spec.type = '\0';
  return spec;
}

std::string format_number(const Value& number, const FormatSpec& spec) {
  std::string digits;
  bool negative = false;
  if (number.is_integral() && !is_real_type(spec.type)) {
    const std::int64_t integer = number.as_int();
    negative = integer < 0;
    const auto bits = static_cast<std::uint64_t>(integer);
    digits = magnitude_text(negative ? 0 - bits : bits, spec);
  } else {
    negative = std::signbit(number.as_real()) && !std::isnan(number.as_real());
    digits = real_text(std::abs(number.as_real()), spec);
  }
  if (spec.grouping != '\0') {
    const bool by_four =
        spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b';
    digits = group_digits(digits, spec.grouping, by_four ? 4 : 3);
  }
  const char sign = negative ? '-' : spec.sign;
  return sign == '-' && !negative ? digits : fmt::format("{}{}", sign, digits);
}

MarkedString pad(Runtime& runtime, const MarkedString& text, const FormatSpec& spec, char align) {
  runtime.meter.text(text.size());
  const std::size_t length = count_characters(text.view());
  if (length >= spec.width) return text;
  const std::uint64_t missing = spec.width - length;
  const std::uint64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string fill;
  append_utf8(fill, spec.fill);
  TextBuilder out(runtime);
  const bool has_sign =
      !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+' || text.bytes()[0] == ' ');
  const std::size_t head = align == '=' && has_sign ? 1 : 0;
  out.append(text, 0, head);
  out.fill(fill, left, Origin::Markup);
  out.append(text, head, text.size());
  out.fill(fill, missing - left, Origin::Markup);
  return out.take();
}

MarkedString format_value(Runtime& runtime, const Value& value, const FormatSpec& spec) {
  const char align = spec.align;
  if (value.is_number() && !(value.is(Kind::Bool) && spec.type == '\0')) {
    if (spec.type == 'c') {
      std::string character;
      append_utf8(character, static_cast<char32_t>(value.as_int() & 0x1FFFFF));
      return pad(runtime, {character, value.origin()}, spec, align == '\0' ? '<' : align);
    }
    const bool fits = spec.type == '\0' || is_real_type(spec.type) ||
                      (is_integer_type(spec.type) && value.is_integral());
    if (!fits) {
      fail(Errc::BadInput, "unknown format code '{}' for object of type '{}'", spec.type,
           type_name(value));
    }
    return pad(runtime, {format_number(value, spec), value.origin()}, spec,
               align == '\0' ? '>' : align);
  }
  if (spec.type != '\0' && spec.type != 's') {
    fail(Errc::BadInput, "unknown format code '{}' for object of type '{}'", spec.type,
         type_name(value));
  }
  MarkedString text = to_text(runtime, value);
  if (spec.precision) {
    text =
        text.substr(0, byte_of_character(text.view(), static_cast<std::size_t>(*spec.precision)));
  }
  return pad(runtime, text, spec, align == '\0' || align == '=' ? '<' : align);
}

}  // namespace moeflux::jinja
