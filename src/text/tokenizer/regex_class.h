// Escapes and bracketed classes of a regular expression, with nesting and intersection. Part of the
// translation in regex_syntax.h, which says from and to which dialect.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace moeflux {

// A cursor over a pattern. Reading past the end is the pattern's error, never ours.
struct PatternReader {
  std::string_view text;
  std::size_t at;
  std::string_view origin;

  bool at_end() const { return at >= text.size(); }
  bool starts_with(std::string_view prefix) const { return text.substr(at).starts_with(prefix); }
  char peek(std::size_t ahead = 0) const;
  char take();
  std::string_view take_character();  // one UTF-8 character
  [[noreturn]] void bad(std::string_view what) const;
  [[noreturn]] void unsupported(std::string_view what) const;
};

// A set as PCRE2 writes it: `items` between [ and ], or, for what no single bracket can say, a
// group that matches one character.
struct CharSet {
  std::string items;
  std::string group;     // used instead of items when not empty
  bool negated = false;  // of items

  std::string standalone() const;
};

enum class SetPlace { Standalone, InBracket };

// \s \S \w \W \d \D \h \H \p{..} \P{..} at the cursor; nothing, and nothing consumed, when
// something else stands there.
std::optional<CharSet> take_set_escape(PatternReader& in, SetPlace place);

// An escape that means one character (\n, \x{..}, \u...., \-), as PCRE2 writes it in and out of
// brackets.
std::string take_character_escape(PatternReader& in);

// [..] at the cursor, as a PCRE2 atom.
std::string translate_class(PatternReader& in);

}  // namespace moeflux
