#include "text/tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"

namespace moeflux {
namespace {

// ---- versions of Unicode

// The tokenizers library knows other versions of Unicode than utf8proc: its normal forms are of
// version 9, its punctuation is of version 8, and Rust's own numbers and lowercase letters are of
// version 17. The tables hold for every version of utf8proc up to that one.

struct Range {
  char32_t first, last;
};
struct LowercaseRange {
  char32_t first, last, lowercase;  // of the first
};

// clang-format off
constexpr Range kNormalForms[] = {
    {0x7FD, 0x7FD}, {0x897, 0x89F}, {0x8CA, 0x8D3}, {0x9FE, 0x9FE}, {0xC3C, 0xC3C}, {0xD3B, 0xD3C},
    {0xEBA, 0xEBA}, {0x1715, 0x1715}, {0x1ABF, 0x1ADD}, {0x1AE0, 0x1AEB}, {0x1DF6, 0x1DFA},
    {0x32FF, 0x32FF}, {0xA7F1, 0xA7F4}, {0xA82C, 0xA82C}, {0xAB69, 0xAB69}, {0x105C9, 0x105C9},
    {0x105D2, 0x105D2}, {0x105DA, 0x105DA}, {0x105E4, 0x105E4}, {0x10781, 0x10785},
    {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10D69, 0x10D6D},
    {0x10EAB, 0x10EAC}, {0x10EFA, 0x10EFB}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x11382, 0x11385},
    {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x11391}, {0x113C2, 0x113C2},
    {0x113C5, 0x113C5}, {0x113C7, 0x113C8}, {0x113CE, 0x113D0}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193D, 0x1193E},
    {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
    {0x11F41, 0x11F42}, {0x1611E, 0x1611E}, {0x16121, 0x16129}, {0x1612F, 0x1612F},
    {0x16D63, 0x16D63}, {0x16D67, 0x16D6A}, {0x16FF0, 0x16FF1}, {0x1CCD6, 0x1CCF9},
    {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1E6E3, 0x1E6E3},
    {0x1E6E6, 0x1E6E6}, {0x1E6EE, 0x1E6EF}, {0x1E6F5, 0x1E6F5}, {0x1F16C, 0x1F16C},
    {0x1FBF0, 0x1FBF9},
};
constexpr Range kPunctuation[] = {
    {0x61D, 0x61D}, {0x9FD, 0x9FD}, {0xA76, 0xA76}, {0xC77, 0xC77}, {0xC84, 0xC84},
    {0x1B4E, 0x1B4F}, {0x1B7D, 0x1B7F}, {0x2E43, 0x2E4F}, {0x2E52, 0x2E5D}, {0x10D6E, 0x10D6E},
    {0x10EAD, 0x10EAD}, {0x10ED0, 0x10ED0}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89},
    {0x113D4, 0x113D5}, {0x113D7, 0x113D8}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B},
    {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1183B, 0x1183B},
    {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46}, {0x11A9A, 0x11A9C},
    {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11BE1, 0x11BE1}, {0x11C41, 0x11C45},
    {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF},
    {0x12FF1, 0x12FF2}, {0x16D6D, 0x16D6F}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2},
    {0x1E5FF, 0x1E5FF}, {0x1E95E, 0x1E95F},
};
constexpr Range kNumbers[] = {
    {0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x11DE0, 0x11DE9},
    {0x16130, 0x16139}, {0x16D70, 0x16D79}, {0x16FF4, 0x16FF6}, {0x1CCF0, 0x1CCF9},
    {0x1E5F1, 0x1E5FA},
};
constexpr LowercaseRange kLowercase[] = {
    {0x1C89, 0x1C89, 0x1C8A}, {0xA7CB, 0xA7CB, 0x264}, {0xA7CC, 0xA7CC, 0xA7CD},
    {0xA7CE, 0xA7CE, 0xA7CF}, {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5},
    {0xA7DA, 0xA7DA, 0xA7DB}, {0xA7DC, 0xA7DC, 0x19B}, {0x10D50, 0x10D65, 0x10D70},
    {0x16EA0, 0x16EB8, 0x16EBB},
};
// clang-format on

// The range with the character; null when there is none.
template <class RangeType, std::size_t n>
const RangeType* find_range(const RangeType (&ranges)[n], char32_t c) {
  const RangeType* range = std::partition_point(
      std::begin(ranges), std::end(ranges), [c](const RangeType& each) { return each.last < c; });
  return range != std::end(ranges) && range->first <= c ? range : nullptr;
}

// Whether a version after 9 decomposes the character, reorders it, or composes it with another one
// that follows. To the library it is a character that nothing happens to.
bool has_late_normal_form(char32_t c) {
  return find_range(kNormalForms, c) != nullptr;
}

// Since a version after 8.
bool is_late_punctuation(char32_t c) {
  return find_range(kPunctuation, c) != nullptr;
}

// Of version 8 and no more.
bool is_former_punctuation(char32_t c) {
  return c == 0x166D || c == 0x111C9;
}

// Since a version after 15.
bool is_late_number(char32_t c) {
  return find_range(kNumbers, c) != nullptr;
}

// The same, of letters; others are their own.
char32_t late_lowercase(char32_t c) {
  const LowercaseRange* range = find_range(kLowercase, c);
  return range == nullptr ? c : range->lowercase + (c - range->first);
}

// ---- normal forms and classes

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
