#include "text/tokenizer/regex_property.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "text/tokenizer/late_characters.h"

namespace moeflux {
namespace {

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
