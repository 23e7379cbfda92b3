#include "text/tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <vector>

#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/unicode_versions.h"

namespace moeflux {
namespace {

using CodePoint = utf8proc_int32_t;

CodePoint signed_code(char32_t c) {
  return static_cast<CodePoint>(c);
}

auto combining_class(CodePoint c) {
  return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class;
}

std::vector<CodePoint> decompose(std::string_view text, utf8proc_option_t options) {
  std::vector<CodePoint> out;
  out.reserve(text.size());
  std::array<CodePoint, 32> parts{};  // the longest decomposition has 18 characters
  int boundary_state = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    at += step.length;
    if (step.code_point < 0x80) {
      out.push_back(signed_code(step.code_point));
      continue;
    }
    const auto n = utf8proc_decompose_char(signed_code(step.code_point), parts.data(), parts.size(),
                                           options, &boundary_state);
    MOEFLUX_ASSERT(n >= 0 && n <= static_cast<utf8proc_ssize_t>(parts.size()));
    out.insert(out.end(), parts.begin(), parts.begin() + n);
  }
  return out;
}

// Canonical ordering. utf8proc's own is an insertion sort, which a megabyte of marks turns into
// minutes.
void order_marks(std::vector<CodePoint>& text) {
  for (auto it = text.begin(); it != text.end();) {
    if (combining_class(*it) == 0) {
      ++it;
      continue;
    }
    const auto end =
        std::find_if(it, text.end(), [](CodePoint c) { return combining_class(c) == 0; });
    if (end - it > 1) {
      std::stable_sort(it, end, [](CodePoint a, CodePoint b) {
        return combining_class(a) < combining_class(b);
      });
    }
    it = end;
  }
}

void append_normal_form(std::string& out, std::string_view text, NormalForm form) {
  const bool compose = form == NormalForm::Nfc || form == NormalForm::Nfkc;
  const bool compatible = form == NormalForm::Nfkc || form == NormalForm::Nfkd;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (compatible ? UTF8PROC_COMPAT : 0));

  std::vector<CodePoint> chars = decompose(text, options);
  order_marks(chars);
  if (compose) {
    const auto n = utf8proc_normalize_utf32(chars.data(),
                                            static_cast<utf8proc_ssize_t>(chars.size()), options);
    MOEFLUX_ASSERT(n >= 0);
    chars.resize(static_cast<std::size_t>(n));
  }
  for (const CodePoint c : chars) append_utf8(out, static_cast<char32_t>(c));
}

}  // namespace

std::string to_normal_form(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  // Nothing reaches across a character without a class and a normal form, so text is cut there.
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    if (has_late_normal_form(step.code_point)) {
      append_normal_form(out, text.substr(done, at - done), form);
      out += text.substr(at, step.length);
      done = at + step.length;
    }
    at += step.length;
  }
  append_normal_form(out, text.substr(done), form);
  return out;
}

void append_lowercase(std::string& out, char32_t c) {
  if (c == 0x130) {  // the one character whose full mapping is longer than its simple one
    out += "i\xCC\x87";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(signed_code(late_lowercase(c)))));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  if (c == 0x85) return true;
  const auto category = utf8proc_category(signed_code(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto category = utf8proc_category(signed_code(c));
  return (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) ||
         is_late_number(c);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) ||
           (c >= 0x7B && c <= 0x7E);
  }
  const auto category = utf8proc_category(signed_code(c));
  const bool now = category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
  return (now && !is_late_punctuation(c)) || is_former_punctuation(c);
}

bool is_word(char32_t c) {
  const auto category = utf8proc_category(signed_code(c));
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ME) return true;  // L, M
  if (category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
      category == UTF8PROC_CATEGORY_PC) {
    return true;
  }
  const auto within = [c](char32_t low, char32_t high) { return c >= low && c <= high; };
  return within(0x200C, 0x200D) ||                              // joiners
         within(0x24B6, 0x24E9) || within(0x1F130, 0x1F149) ||  // symbols that are Alphabetic
         within(0x1F150, 0x1F169) || within(0x1F170, 0x1F189);
}

}  // namespace moeflux
