#include "text/jinja/lexer_literals.h"

#include <charconv>

#include <fmt/format.h>

#include "text/jinja/unicode.h"

namespace moeflux::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// Digits of that base, with single underscores between them; the end of the run.
std::size_t digits_end(std::string_view text, std::size_t at, int base) {
  const auto is_digit_at = [&](std::size_t i) {
    return i < text.size() && digit_value(text[i]) < base;
  };
  std::size_t end = at;
  while (true) {
    if (is_digit_at(end)) {
      ++end;
    } else if (end > at && end < text.size() && text[end] == '_' && is_digit_at(end + 1)) {
      end += 2;
    } else {
      return end;
    }
  }
}

std::string without_underscores(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != '_') digits += c;
  }
  return digits;
}

// The end of a fraction and exponent after the digits that end at `whole`, or `whole` without any.
std::size_t float_end(std::string_view text, std::size_t whole) {
  std::size_t end = whole;
  if (end + 1 < text.size() && text[end] == '.') {
    const std::size_t fraction = digits_end(text, end + 1, 10);
    if (fraction > end + 1) end = fraction;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    std::size_t digits = end + 1;
    if (digits < text.size() && (text[digits] == '+' || text[digits] == '-')) ++digits;
    const std::size_t exponent = digits_end(text, digits, 10);
    if (exponent > digits) end = exponent;
  }
  return end;
}

NumberLiteral read_integer(std::string_view text, std::size_t prefix, int base) {
  NumberLiteral literal;
  literal.size = digits_end(text, prefix, base);
  const std::string digits = without_underscores(text.substr(prefix, literal.size - prefix));
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), literal.integer, base);
  literal.too_large = error != std::errc();
  return literal;
}

int radix(char letter) {
  switch (letter) {
    case 'x':
    case 'X':
      return 16;
    case 'o':
    case 'O':
      return 8;
    case 'b':
    case 'B':
      return 2;
    default:
      return 10;
  }
}

bool is_high_surrogate(char32_t c) {
  return c >= 0xD800 && c <= 0xDBFF;
}
bool is_low_surrogate(char32_t c) {
  return c >= 0xDC00 && c <= 0xDFFF;
}

// `count` hexadecimal digits at `at`; false when they are not there.
bool read_hex(std::string_view text, std::size_t at, std::size_t count, char32_t& value) {
  if (at + count > text.size()) return false;
  value = 0;
  for (std::size_t i = at; i < at + count; ++i) {
    const int digit = digit_value(text[i]);
    if (digit > 15) return false;
    value = value * 16 + static_cast<char32_t>(digit);
  }
  return true;
}

// The letter after a backslash that stands for one character, or 0.
char simple_escape(char letter) {
  switch (letter) {
    case '\\':
    case '\'':
    case '"':
      return letter;
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    default:
      return '\0';
  }
}

}  // namespace

NumberLiteral read_number(std::string_view text, bool integer_only) {
  if (text.empty() || digit_value(text[0]) > 9) return {};
  if (text[0] == '0' && text.size() > 1 && radix(text[1]) != 10) {
    const std::size_t prefix = text.size() > 2 && text[2] == '_' ? 3 : 2;
    if (digits_end(text, prefix, radix(text[1])) > prefix) {
      return read_integer(text, prefix, radix(text[1]));
    }
  }
  const std::size_t whole = digits_end(text, 0, 10);
  const std::size_t end = integer_only ? whole : float_end(text, whole);
  if (end > whole) {
    NumberLiteral literal{.size = end, .is_float = true};
    const std::string digits = without_underscores(text.substr(0, end));
    const auto [stop, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), literal.real);
    literal.too_large = error != std::errc();
    return literal;
  }
  if (text[0] != '0') return read_integer(text, 0, 10);
  // A leading zero ends the number unless only zeros follow, as in Python.
  NumberLiteral zero{.size = 1};
  while (zero.size < whole && (text[zero.size] == '0' || text[zero.size] == '_')) ++zero.size;
  if (text[zero.size - 1] == '_') --zero.size;
  return zero;
}

std::size_t string_literal_size(std::string_view text) {
  if (text.empty() || (text[0] != '\'' && text[0] != '"')) return 0;
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == text[0]) {
      return at + 1;
    }
  }
  return 0;
}

std::string unescape(std::string_view inside, std::string& text) {
  for (std::size_t at = 0; at < inside.size(); ++at) {
    if (inside[at] != '\\' || at + 1 == inside.size()) {
      text += inside[at];
      continue;
    }
    const char letter = inside[++at];
    char32_t code_point = 0;
    if (const char simple = simple_escape(letter); simple != '\0') {
      text += simple;
    } else if (letter == '\n') {
      // A backslash at the end of a line joins the lines.
    } else if (digit_value(letter) < 8) {
      std::size_t digits = 0;
      for (; digits < 3 && at < inside.size() && digit_value(inside[at]) < 8; ++digits, ++at) {
        code_point = code_point * 8 + static_cast<char32_t>(digit_value(inside[at]));
      }
      --at;
      append_utf8(text, code_point);
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      const std::size_t count = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
      if (!read_hex(inside, at + 1, count, code_point) || code_point > 0x10FFFF) {
        return fmt::format("a string has a damaged \\{} escape", letter);
      }
      at += count;
      char32_t low = 0;
      if (is_high_surrogate(code_point) && inside.substr(at + 1, 2) == "\\u" &&
          read_hex(inside, at + 3, 4, low) && is_low_surrogate(low)) {
        code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
        at += 6;
      }
      const bool alone = is_high_surrogate(code_point) || is_low_surrogate(code_point);
      append_utf8(text, alone ? char32_t{0xFFFD} : code_point);
    } else if (letter == 'N') {
      return "a string names a character with \\N{...}, which is not supported";
    } else {
      text += '\\';
      text += letter;
    }
  }
  return {};
}

}  // namespace moeflux::jinja
