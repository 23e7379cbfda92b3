// Patterns as languages: what may stand before and after a match is part of the language, and what
// looks ahead constrains the rest of the text.
#include "text/grammar/pattern_language.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr std::uint32_t kMaxUnrolled = 64;  // repetitions of what looks around

// What the character before a place can be.
enum Before : unsigned { kStart = 1, kWord = 2, kOther = 4, kAny = 7 };

bool looks_around(const PatternNode& node) {
  return contains_kind(node, PatternKind::Start) || contains_kind(node, PatternKind::End) ||
         contains_kind(node, PatternKind::Ahead) || contains_kind(node, PatternKind::Border);
}

unsigned kinds_in(const CodePoints& set) {
  const CodePoints word = pattern_word_characters();
  return (set.common(word).empty() ? 0u : kWord) | (set.without(word).empty() ? 0u : kOther);
}

// What can be the last character of the node's text; kStart: the text may be empty.
unsigned last_of(const PatternNode& node) {
  unsigned last = 0;
  switch (node.kind) {
    case PatternKind::Set:
      return kinds_in(node.set);
    case PatternKind::Sequence:
      last = kStart;
      for (const PatternNode& part : node.parts) {
        const unsigned own = last_of(part);
        last = (own & ~kStart) | ((own & kStart) != 0 ? last : 0u);
      }
      return last;
    case PatternKind::Choice:
      for (const PatternNode& part : node.parts) last |= last_of(part);
      return last;
    case PatternKind::Repeat:
      return last_of(node.parts[0]) | (node.min == 0 ? kStart : 0u);
    default:
      return kStart;
  }
}

unsigned after(const PatternNode& node, unsigned before) {
  const unsigned last = last_of(node);
  return (last & ~kStart) | ((last & kStart) != 0 ? before : 0u);
}

class Translator {
 public:
  explicit Translator(TextLanguages& languages) : l_(languages) {}

  // The rest of a text from a place where the node matches and `then` follows.
  LanguageId rest(const PatternNode& node, LanguageId then, unsigned before) {
    switch (node.kind) {
      case PatternKind::Set:
        return l_.sequence(l_.characters(node.set), then);
      case PatternKind::Sequence: {
        std::vector<unsigned> places = {before};
        for (const PatternNode& part : node.parts) places.push_back(after(part, places.back()));
        for (std::size_t i = node.parts.size(); i-- > 0;) {
          then = rest(node.parts[i], then, places[i]);
        }
        return then;
      }
      case PatternKind::Choice: {
        std::vector<LanguageId> ways;
        for (const PatternNode& part : node.parts) ways.push_back(rest(part, then, before));
        return l_.either(std::move(ways));
      }
      case PatternKind::Repeat:
        return repeated(node, then, before);
      case PatternKind::Start:
        if (before == kStart) return then;
        if ((before & kStart) == 0) return l_.nothing();
        fail(Errc::Unsupported, "^ after what may be empty");
      case PatternKind::End:
        return l_.both({then, l_.empty()});
      case PatternKind::Ahead: {
        const LanguageId inside = rest(node.parts[0], l_.anything(), before);
        return l_.both({node.negated ? l_.complement(inside) : inside, then});
      }
      case PatternKind::Border:
        break;
    }
    return l_.both({border(before, node.negated), then});
  }

 private:
  LanguageId border(unsigned before, bool negated) {
    const bool word_before = before == kWord;
    if (!word_before && (before & kWord) != 0) {
      fail(Errc::Unsupported, "\\b after what may be a word or not");
    }
    const LanguageId word = l_.sequence(l_.characters(pattern_word_characters()), l_.anything());
    return word_before != negated ? l_.complement(word) : word;
  }

  LanguageId repeated(const PatternNode& node, LanguageId then, unsigned before) {
    const PatternNode& part = node.parts[0];
    if (!looks_around(part)) {
      const LanguageId one = rest(part, l_.empty(), kAny);
      return l_.sequence(l_.repeat(one, node.min, node.max), then);
    }
    if (node.max == Grammar::kUnbounded) {
      if (node.min == 0 && then == l_.anything()) return then;
      if (const auto guarded = guarded_characters(part, then)) {
        if (node.min > 0) fail(Errc::Unsupported, "+ after a look-ahead");
        return *guarded;
      }
      fail(Errc::Unsupported, "an endless repetition of what looks around");
    }
    if (node.max > kMaxUnrolled) fail(Errc::Unsupported, "many repetitions of what looks around");
    const unsigned later = after(part, before) | before;
    LanguageId so_far = then;
    for (std::uint32_t i = node.max; i-- > 0;) {
      const LanguageId once = rest(part, so_far, i == 0 ? before : later);
      so_far = i < node.min ? once : l_.either({once, then});
    }
    return so_far;
  }

  // (?:(?!x).)* up to the end: characters of a set, and x begins nowhere.
  std::optional<LanguageId> guarded_characters(const PatternNode& part, LanguageId then) {
    if (then != l_.empty() || part.kind != PatternKind::Sequence || part.parts.size() != 2 ||
        part.parts[0].kind != PatternKind::Ahead || !part.parts[0].negated ||
        part.parts[1].kind != PatternKind::Set || looks_around(part.parts[0].parts[0])) {
      return std::nullopt;
    }
    const LanguageId set = l_.characters(part.parts[1].set);
    const LanguageId bad = rest(part.parts[0].parts[0], l_.anything(), kAny);
    if (l_.has_empty(bad)) return l_.empty();
    return l_.both(
        {l_.repeat(set, 0, Grammar::kUnbounded), l_.complement(l_.sequence(l_.anything(), bad))});
  }

  TextLanguages& l_;
};

}  // namespace

LanguageId pattern_language(TextLanguages& languages, std::string_view pattern) {
  const PatternNode node = parse_pattern(pattern);
  Translator translator(languages);
  const auto from = [&](CodePoints before, unsigned kind) {
    return languages.sequence(
        languages.sequence(languages.anything(), languages.characters(std::move(before))),
        translator.rest(node, languages.anything(), kind));
  };
  if (contains_kind(node, PatternKind::Border)) {
    const CodePoints word = pattern_word_characters();
    return languages.either({translator.rest(node, languages.anything(), kStart), from(word, kWord),
                             from(word.complement(), kOther)});
  }
  if (!contains_kind(node, PatternKind::Start)) {
    return languages.sequence(languages.anything(),
                              translator.rest(node, languages.anything(), kAny));
  }
  return languages.either({translator.rest(node, languages.anything(), kStart),
                           from(CodePoints::all(), kWord | kOther)});
}

}  // namespace moeflux
