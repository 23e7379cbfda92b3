// \p{...} of patterns.
#include <array>
#include <string>
#include <utility>

#include <utf8proc.h>

#include "text/grammar/pattern_syntax.h"

namespace moeflux {
namespace {

using Member = bool (*)(char32_t);

template <class Keep>
CodePoints all_that(const Keep& keep) {
  CodePoints out;
  char32_t first = 0;
  bool open = false;
  for (char32_t c = 0; c <= CodePoints::kLast; ++c) {
    const bool is_member = (c < 0xD800 || c > 0xDFFF) && keep(c);
    if (is_member && !open) first = c;
    if (!is_member && open) out.add(first, c - 1);
    open = is_member;
  }
  if (open) out.add(first, CodePoints::kLast);
  return out;
}

std::string_view category(char32_t c) {
  return utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
}

bool is_pictographic(char32_t c) {
  const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  return property->boundclass == UTF8PROC_BOUNDCLASS_EXTENDED_PICTOGRAPHIC;
}

CodePoints emoji_parts() {
  CodePoints set = CodePoints::of(U"#*\u200D\u20E3\uFE0F");
  set.add('0', '9');
  set.add(0x1F1E6, 0x1F1FF);
  set.add(0x1F3FB, 0x1F3FF);
  set.add(0x1F9B0, 0x1F9B3);
  set.add(0xE0020, 0xE007F);
  return set;
}

// Long names of general categories.
constexpr std::array<std::pair<std::string_view, std::string_view>, 24> kNames = {{
    {"Letter", "L"},
    {"Alphabetic", "L"},
    {"Uppercase_Letter", "Lu"},
    {"Uppercase", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Lowercase", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"punct", "P"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Control", "Cc"},
}};

}  // namespace

std::optional<CodePoints> unicode_property(std::string_view name) {
  if (name == "Any") return CodePoints::all();
  if (name == "ASCII") return CodePoints(0, 0x7F);
  if (name == "Extended_Pictographic" || name == "Emoji_Presentation") {
    return all_that(is_pictographic);
  }
  if (name == "Emoji_Component") return emoji_parts();
  if (name == "Emoji") {
    CodePoints set = all_that(is_pictographic);
    set.add(emoji_parts());
    return set;
  }
  if (name == "Regional_Indicator") return CodePoints(0x1F1E6, 0x1F1FF);
  for (const std::string_view prefix : {"General_Category=", "gc="}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  for (const auto& [full, brief] : kNames) {
    if (name == full) name = brief;
  }
  static constexpr std::string_view kMajor = "LMNPSZC";
  if (name.empty() || name.size() > 2 || kMajor.find(name[0]) == std::string_view::npos) {
    return std::nullopt;
  }
  CodePoints set = all_that([&](char32_t c) { return category(c).starts_with(name); });
  if (set.empty()) return std::nullopt;
  return set;
}

}  // namespace moeflux
