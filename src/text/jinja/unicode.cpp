#include "text/jinja/unicode.h"

#include <algorithm>
#include <array>

#include <utf8proc.h>

#include "base/utf8.h"

namespace moeflux::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0u) == 0x80u;
}

// Characters whose upper case is several characters and common enough to be met in text.
struct Expansion {
  char32_t from;
  std::string_view upper;
  std::string_view title;
};
constexpr std::array<Expansion, 10> kExpansions = {{
    {0x00DF, "SS", "Ss"},
    {0x0149, "\xCA\xBCN", "\xCA\xBCN"},
    {0x01F0, "J\xCC\x8C", "J\xCC\x8C"},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
}};

}  // namespace

CodePoint decode(std::string_view text, std::size_t at) {
  const Utf8Step step = decode_utf8(text, at);
  if (!step.valid) return {static_cast<unsigned char>(text[at]), 1, false};
  return {step.code_point, step.length, true};
}

CodePoint decode_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && is_continuation(text[begin])) --begin;
  const CodePoint c = decode(text, begin);
  if (begin + c.size == end) return c;
  return {static_cast<unsigned char>(text[end - 1]), 1, false};
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += decode(text, at).size) ++count;
  return count;
}

std::size_t byte_of_character(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (index > 0 && at < text.size()) {
    at += decode(text, at).size;
    --index;
  }
  return at;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::size_t skip_spaces(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const CodePoint c = decode(text, at);
    if (!c.valid || !is_space(c.value)) break;
    at += c.size;
  }
  return at;
}

std::size_t skip_spaces_back(std::string_view text, std::size_t end) {
  while (end > 0) {
    const CodePoint c = decode_before(text, end);
    if (!c.valid || !is_space(c.value)) break;
    end -= c.size;
  }
  return end;
}

bool is_alpha(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 ||
         c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490);
}

bool is_alnum(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return is_alpha(c) || is_digit(c) || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA;
}

bool is_title(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_printable(char32_t c) {
  // Separators and others, which surround the rest.
  const utf8proc_category_t kind = category(c);
  return c == U' ' || (kind > UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS);
}

std::string to_case(char32_t c, Case wanted) {
  if (wanted == Case::Lower && c == 0x130) return "i\xCC\x87";
  if (wanted != Case::Lower) {
    for (const Expansion& expansion : kExpansions) {
      if (expansion.from == c) {
        return std::string(wanted == Case::Upper ? expansion.upper : expansion.title);
      }
    }
  }
  const auto code_point = static_cast<utf8proc_int32_t>(c);
  const utf8proc_int32_t mapped = wanted == Case::Upper   ? utf8proc_toupper(code_point)
                                  : wanted == Case::Title ? utf8proc_totitle(code_point)
                                                          : utf8proc_tolower(code_point);
  std::string result;
  append_utf8(result, static_cast<char32_t>(mapped));
  return result;
}

}  // namespace moeflux::jinja
