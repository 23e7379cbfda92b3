#include "text/tokenizer/regex_property.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

namespace moeflux {
namespace {

// ---- characters after Unicode 14

// PCRE2 10.42 knows Unicode 14; tokenizers are made with version 16. Without the characters between
// a new emoji or ideograph would be cut differently.

struct LateRange {
  char32_t first, last;
  std::string_view category;
};

// clang-format off
constexpr LateRange kLateRanges[] = {
    {0x897, 0x897, "Mn"}, {0xCF3, 0xCF3, "Mc"}, {0xECE, 0xECE, "Mn"}, {0x1B4E, 0x1B4F, "Po"},
    {0x1B7F, 0x1B7F, "Po"}, {0x1C89, 0x1C89, "Lu"}, {0x1C8A, 0x1C8A, "Ll"}, {0x2427, 0x2429, "So"},
    {0x2FFC, 0x2FFF, "So"}, {0x31E4, 0x31E5, "So"}, {0x31EF, 0x31EF, "So"}, {0xA7CB, 0xA7CC, "Lu"},
    {0xA7CD, 0xA7CD, "Ll"}, {0xA7DA, 0xA7DA, "Lu"}, {0xA7DB, 0xA7DB, "Ll"}, {0xA7DC, 0xA7DC, "Lu"},
    {0x105C0, 0x105F3, "Lo"}, {0x10D40, 0x10D49, "Nd"}, {0x10D4A, 0x10D4D, "Lo"},
    {0x10D4E, 0x10D4E, "Lm"}, {0x10D4F, 0x10D4F, "Lo"}, {0x10D50, 0x10D65, "Lu"},
    {0x10D69, 0x10D6D, "Mn"}, {0x10D6E, 0x10D6E, "Pd"}, {0x10D6F, 0x10D6F, "Lm"},
    {0x10D70, 0x10D85, "Ll"}, {0x10D8E, 0x10D8F, "Sm"}, {0x10EC2, 0x10EC4, "Lo"},
    {0x10EFC, 0x10EFF, "Mn"}, {0x1123F, 0x11240, "Lo"}, {0x11241, 0x11241, "Mn"},
    {0x11380, 0x11389, "Lo"}, {0x1138B, 0x1138B, "Lo"}, {0x1138E, 0x1138E, "Lo"},
    {0x11390, 0x113B5, "Lo"}, {0x113B7, 0x113B7, "Lo"}, {0x113B8, 0x113BA, "Mc"},
    {0x113BB, 0x113C0, "Mn"}, {0x113C2, 0x113C2, "Mc"}, {0x113C5, 0x113C5, "Mc"},
    {0x113C7, 0x113CA, "Mc"}, {0x113CC, 0x113CD, "Mc"}, {0x113CE, 0x113CE, "Mn"},
    {0x113CF, 0x113CF, "Mc"}, {0x113D0, 0x113D0, "Mn"}, {0x113D1, 0x113D1, "Lo"},
    {0x113D2, 0x113D2, "Mn"}, {0x113D3, 0x113D3, "Lo"}, {0x113D4, 0x113D5, "Po"},
    {0x113D7, 0x113D8, "Po"}, {0x113E1, 0x113E2, "Mn"}, {0x116D0, 0x116E3, "Nd"},
    {0x11B00, 0x11B09, "Po"}, {0x11BC0, 0x11BE0, "Lo"}, {0x11BE1, 0x11BE1, "Po"},
    {0x11BF0, 0x11BF9, "Nd"}, {0x11F00, 0x11F01, "Mn"}, {0x11F02, 0x11F02, "Lo"},
    {0x11F03, 0x11F03, "Mc"}, {0x11F04, 0x11F10, "Lo"}, {0x11F12, 0x11F33, "Lo"},
    {0x11F34, 0x11F35, "Mc"}, {0x11F36, 0x11F3A, "Mn"}, {0x11F3E, 0x11F3F, "Mc"},
    {0x11F40, 0x11F40, "Mn"}, {0x11F41, 0x11F41, "Mc"}, {0x11F42, 0x11F42, "Mn"},
    {0x11F43, 0x11F4F, "Po"}, {0x11F50, 0x11F59, "Nd"}, {0x11F5A, 0x11F5A, "Mn"},
    {0x1342F, 0x1342F, "Lo"}, {0x13439, 0x1343F, "Cf"}, {0x13440, 0x13440, "Mn"},
    {0x13441, 0x13446, "Lo"}, {0x13447, 0x13455, "Mn"}, {0x13460, 0x143FA, "Lo"},
    {0x16100, 0x1611D, "Lo"}, {0x1611E, 0x16129, "Mn"}, {0x1612A, 0x1612C, "Mc"},
    {0x1612D, 0x1612F, "Mn"}, {0x16130, 0x16139, "Nd"}, {0x16D40, 0x16D42, "Lm"},
    {0x16D43, 0x16D6A, "Lo"}, {0x16D6B, 0x16D6C, "Lm"}, {0x16D6D, 0x16D6F, "Po"},
    {0x16D70, 0x16D79, "Nd"}, {0x18CFF, 0x18CFF, "Lo"}, {0x1B132, 0x1B132, "Lo"},
    {0x1B155, 0x1B155, "Lo"}, {0x1CC00, 0x1CCEF, "So"}, {0x1CCF0, 0x1CCF9, "Nd"},
    {0x1CD00, 0x1CEB3, "So"}, {0x1D2C0, 0x1D2D3, "No"}, {0x1DF25, 0x1DF2A, "Ll"},
    {0x1E030, 0x1E06D, "Lm"}, {0x1E08F, 0x1E08F, "Mn"}, {0x1E4D0, 0x1E4EA, "Lo"},
    {0x1E4EB, 0x1E4EB, "Lm"}, {0x1E4EC, 0x1E4EF, "Mn"}, {0x1E4F0, 0x1E4F9, "Nd"},
    {0x1E5D0, 0x1E5ED, "Lo"}, {0x1E5EE, 0x1E5EF, "Mn"}, {0x1E5F0, 0x1E5F0, "Lo"},
    {0x1E5F1, 0x1E5FA, "Nd"}, {0x1E5FF, 0x1E5FF, "Po"}, {0x1F6DC, 0x1F6DC, "So"},
    {0x1F774, 0x1F776, "So"}, {0x1F77B, 0x1F77F, "So"}, {0x1F7D9, 0x1F7D9, "So"},
    {0x1F8B2, 0x1F8BB, "So"}, {0x1F8C0, 0x1F8C1, "So"}, {0x1FA75, 0x1FA77, "So"},
    {0x1FA87, 0x1FA89, "So"}, {0x1FA8F, 0x1FA8F, "So"}, {0x1FAAD, 0x1FAAF, "So"},
    {0x1FABB, 0x1FABF, "So"}, {0x1FAC6, 0x1FAC6, "So"}, {0x1FACE, 0x1FACF, "So"},
    {0x1FADA, 0x1FADC, "So"}, {0x1FADF, 0x1FADF, "So"}, {0x1FAE8, 0x1FAE9, "So"},
    {0x1FAF7, 0x1FAF8, "So"}, {0x1FBCB, 0x1FBEF, "So"}, {0x2B739, 0x2B739, "Lo"},
    {0x2EBF0, 0x2EE5D, "Lo"}, {0x31350, 0x323AF, "Lo"},
};
// clang-format on

// The later characters of a general category ("L", "Lu", ..), as ranges for a bracket.
std::string late_characters(std::string_view category) {
  std::string items;
  char32_t first = 0, last = 0;  // neighbours of one category or two become one range
  const auto flush = [&] {
    if (last != 0) {
      items += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<unsigned>(first),
                           static_cast<unsigned>(last));
    }
  };
  for (const LateRange& range : kLateRanges) {
    if (!range.category.starts_with(category)) continue;
    if (last == 0 || range.first != last + 1) {
      flush();
      first = range.first;
    }
    last = range.last;
  }
  flush();
  return items;
}

// ---- named sets

constexpr std::string_view kSpace = R"(\x{09}-\x{0d}\x{85}\p{Z})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{L}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHexDigit = "0-9A-Fa-f";
constexpr std::string_view kAlphabetic = R"(\p{Alphabetic}\p{L})";

// Names are compared without case, spaces, '-' and '_'.
std::string loose(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

struct Alias {
  std::string_view name;  // loose
  std::string_view items;
};

// General categories by their long names, and the names POSIX gave to sets.
constexpr std::array kAliases{
    Alias{"letter", R"(\p{L})"},
    Alias{"casedletter", R"(\p{Lu}\p{Ll}\p{Lt})"},
    Alias{"lc", R"(\p{Lu}\p{Ll}\p{Lt})"},
    Alias{"uppercaseletter", R"(\p{Lu})"},
    Alias{"lowercaseletter", R"(\p{Ll})"},
    Alias{"titlecaseletter", R"(\p{Lt})"},
    Alias{"modifierletter", R"(\p{Lm})"},
    Alias{"otherletter", R"(\p{Lo})"},
    Alias{"mark", R"(\p{M})"},
    Alias{"combiningmark", R"(\p{M})"},
    Alias{"nonspacingmark", R"(\p{Mn})"},
    Alias{"spacingmark", R"(\p{Mc})"},
    Alias{"enclosingmark", R"(\p{Me})"},
    Alias{"number", R"(\p{N})"},
    Alias{"decimalnumber", R"(\p{Nd})"},
    Alias{"letternumber", R"(\p{Nl})"},
    Alias{"othernumber", R"(\p{No})"},
    Alias{"punctuation", R"(\p{P})"},
    Alias{"connectorpunctuation", R"(\p{Pc})"},
    Alias{"dashpunctuation", R"(\p{Pd})"},
    Alias{"openpunctuation", R"(\p{Ps})"},
    Alias{"closepunctuation", R"(\p{Pe})"},
    Alias{"initialpunctuation", R"(\p{Pi})"},
    Alias{"finalpunctuation", R"(\p{Pf})"},
    Alias{"otherpunctuation", R"(\p{Po})"},
    Alias{"symbol", R"(\p{S})"},
    Alias{"mathsymbol", R"(\p{Sm})"},
    Alias{"currencysymbol", R"(\p{Sc})"},
    Alias{"modifiersymbol", R"(\p{Sk})"},
    Alias{"othersymbol", R"(\p{So})"},
    Alias{"separator", R"(\p{Z})"},
    Alias{"spaceseparator", R"(\p{Zs})"},
    Alias{"lineseparator", R"(\p{Zl})"},
    Alias{"paragraphseparator", R"(\p{Zp})"},
    Alias{"other", R"(\p{C})"},
    Alias{"control", R"(\p{Cc})"},
    Alias{"format", R"(\p{Cf})"},
    Alias{"surrogate", R"(\p{Cs})"},
    Alias{"privateuse", R"(\p{Co})"},
    Alias{"unassigned", R"(\p{Cn})"},
    Alias{"alpha", kAlphabetic},
    Alias{"alnum", R"(\p{Alphabetic}\p{L}\p{Nd})"},
    Alias{"digit", R"(\p{Nd})"},
    Alias{"upper", R"(\p{Uppercase})"},
    Alias{"lower", R"(\p{Lowercase})"},
    Alias{"space", kSpace},
    Alias{"whitespace", kSpace},
    Alias{"blank", R"(\p{Zs}\x{09})"},
    Alias{"cntrl", R"(\p{Cc})"},
    Alias{"punct", R"(\p{P})"},
    Alias{"xdigit", kHexDigit},
    Alias{"word", kWord},
    Alias{"ascii", R"(\x{00}-\x{7f})"},
};

const Alias* find_alias(std::string_view name) {
  const std::string key = loose(name);
  const auto it = std::find_if(kAliases.begin(), kAliases.end(),
                               [&](const Alias& alias) { return alias.name == key; });
  return it == kAliases.end() ? nullptr : &*it;
}

bool is_general_category(std::string_view name) {
  static constexpr std::array<std::string_view, 38> kCategories{
      "Any", "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu",
      "M",   "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf",
      "Pi",  "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};
  const std::string key = loose(name);
  return std::any_of(kCategories.begin(), kCategories.end(),
                     [&](std::string_view category) { return loose(category) == key; });
}

// Binary properties tokenizers have been seen to name. Everything else must be a script.
bool is_binary_property(std::string_view name) {
  static constexpr std::array<std::string_view, 10> kProperties{
      "alphabetic",           "uppercase",     "lowercase",
      "ideographic",          "emoji",         "emojipresentation",
      "extendedpictographic", "emojimodifier", "xidstart",
      "xidcontinue"};
  const std::string key = loose(name);
  return std::find(kProperties.begin(), kProperties.end(), key) != kProperties.end();
}

// Adds to each general category the characters PCRE2 does not know yet.
std::string with_late_characters(std::string_view items) {
  std::string out(items);
  for (std::size_t at = items.find("\\p{"); at != std::string_view::npos;
       at = items.find("\\p{", at + 1)) {
    const std::string_view name = items.substr(at + 3, items.find('}', at) - at - 3);
    if (is_general_category(name)) out += late_characters(name);
  }
  return out;
}

}  // namespace

std::string space_items() {
  return std::string(kSpace);
}

std::string not_space_items() {
  return R"(\x{00}-\x{08}\x{0e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
         R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff})"
         R"(\x{3001}-\x{10ffff})";
}

std::string word_items() {
  return with_late_characters(kWord);
}

std::string standalone_word_items() {
  // Below U+0100 all that is numeric counts as well.
  return word_items() + R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
}

std::string hex_digit_items() {
  return std::string(kHexDigit);
}

std::string digit_items() {
  return with_late_characters(R"(\p{Nd})");
}

std::string posix_items(std::string_view name) {
  // As a bracket, punct holds the symbols too; as a property, it does not.
  if (loose(name) == "punct") return with_late_characters(R"(\p{P}\p{S})");
  const Alias* alias = find_alias(name);
  return alias == nullptr ? std::string() : with_late_characters(alias->items);
}

std::string property_items(std::string_view name) {
  if (const Alias* alias = find_alias(name)) return with_late_characters(alias->items);
  std::string items = "\\p{";
  // A bare script name would mean its script extensions to PCRE2.
  if (!is_general_category(name) && !is_binary_property(name)) items += "sc:";
  items.append(name).append("}");
  items = with_late_characters(items);
  if (loose(name) == "han") items += R"(\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
  return items;
}

}  // namespace moeflux
