#include "text/grammar/pattern_syntax.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxPatternBytes = 8192;
constexpr int kMaxGroupNesting = 50;
constexpr std::uint32_t kMaxPatternRepeats = 10'000;

CodePoints digits() {
  return {'0', '9'};
}

CodePoints white_space() {
  CodePoints set = CodePoints::of(U" \u00A0\u1680\u2028\u2029\u202F\u205F\u3000\uFEFF");
  set.add('\t', '\r');
  set.add(0x2000, 0x200A);
  return set;
}

class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(text) {}

  PatternNode run() {
    PatternNode node = parse_choice(0);
    if (at_ < text_.size()) bad("a ) that closes nothing");
    return node;
  }

 private:
  [[noreturn]] void bad(std::string_view what) const {
    fail(Errc::BadInput, "pattern \"{}\", character {}: {}", text_, at_ + 1, what);
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    fail(Errc::Unsupported, "pattern \"{}\", character {}: {} is not supported", text_, at_ + 1,
         what);
  }
  bool at_end() const { return at_ >= text_.size(); }
  bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!next_is(what)) return false;
    at_ += what.size();
    return true;
  }

  PatternNode parse_choice(int nesting) {
    if (nesting > kMaxGroupNesting) bad("groups nested too deep");
    PatternNode choice = {.kind = PatternKind::Choice};
    do {
      choice.parts.push_back(parse_sequence(nesting));
    } while (take("|"));
    return choice.parts.size() == 1 ? std::move(choice.parts[0]) : choice;
  }

  PatternNode parse_sequence(int nesting) {
    PatternNode sequence = {.kind = PatternKind::Sequence};
    while (!at_end() && !next_is("|") && !next_is(")")) {
      PatternNode atom = parse_atom(nesting);
      const bool consumes = atom.kind != PatternKind::Start && atom.kind != PatternKind::End &&
                            atom.kind != PatternKind::Ahead && atom.kind != PatternKind::Border;
      sequence.parts.push_back(consumes ? parse_counts(std::move(atom)) : std::move(atom));
    }
    return sequence;
  }

  PatternNode parse_atom(int nesting) {
    if (take("^")) return {.kind = PatternKind::Start};
    if (take("$")) return {.kind = PatternKind::End};
    if (take("\\b")) return {.kind = PatternKind::Border};
    if (take("\\B")) return {.kind = PatternKind::Border, .negated = true};
    if (take("(")) return parse_group(nesting);
    if (next_is("[")) return {.kind = PatternKind::Set, .set = parse_class()};
    if (take(".")) {
      return {.kind = PatternKind::Set, .set = CodePoints::of(U"\n\r\u2028\u2029").complement()};
    }
    if (next_is("*") || next_is("+") || next_is("?") || counts_follow()) bad("nothing to repeat");
    if (next_is("\\")) return {.kind = PatternKind::Set, .set = parse_escape(false)};
    const char32_t c = take_plain();
    return {.kind = PatternKind::Set, .set = CodePoints(c, c)};
  }

  PatternNode parse_group(int nesting) {
    std::optional<PatternNode> ahead;
    if (take("?")) {
      if (next_is("<=") || next_is("<!")) unsupported("look-behind");
      if (next_is("=") || next_is("!")) {
        ahead = PatternNode{.kind = PatternKind::Ahead, .negated = next_is("!")};
        ++at_;
      } else if (take("<")) {
        while (!at_end() && !take(">")) ++at_;
      } else if (!take(":")) {
        unsupported("this kind of group");
      }
    }
    PatternNode inside = parse_choice(nesting + 1);
    if (!take(")")) bad("a ( that is not closed");
    if (!ahead) return inside;
    ahead->parts.push_back(std::move(inside));
    return std::move(*ahead);
  }

  // {2}, {2,} or {2,3}; any other brace is a character.
  bool counts_follow() const {
    if (!next_is("{")) return false;
    std::size_t i = at_ + 1;
    const auto digit = [&] { return i < text_.size() && text_[i] >= '0' && text_[i] <= '9'; };
    if (!digit()) return false;
    while (digit()) ++i;
    if (i < text_.size() && text_[i] == ',') ++i;
    while (digit()) ++i;
    return i < text_.size() && text_[i] == '}';
  }

  PatternNode parse_counts(PatternNode atom) {
    std::uint32_t min = 0, max = Grammar::kUnbounded;
    if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (counts_follow() && take("{")) {
      min = take_number();
      max = min;
      if (take(",")) max = next_is("}") ? Grammar::kUnbounded : take_number();
      if (!take("}")) bad("expected }");
      if (max < min) bad("counts in the wrong order");
    } else if (!take("*")) {
      return atom;
    }
    if (!take("?") && next_is("+")) unsupported("a possessive count");
    return {.kind = PatternKind::Repeat, .parts = {std::move(atom)}, .min = min, .max = max};
  }

  std::uint32_t take_number() {
    const std::size_t begin = at_;
    std::uint32_t value = 0;
    for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = value * 10 + static_cast<std::uint32_t>(text_[at_] - '0');
      if (value > kMaxPatternRepeats) bad("too many repetitions");
    }
    if (at_ == begin) bad("expected a count");
    return value;
  }

  char32_t take_plain() {
    const Utf8Step step = decode_utf8(text_, at_);
    at_ += step.length;
    return step.code_point;
  }

  CodePoints parse_class() {
    ++at_;
    const bool negated = take("^");
    CodePoints set;
    while (!take("]")) {
      if (at_end()) bad("a [ that is not closed");
      const CodePoints first = parse_class_item();
      if (!next_is("-") || next_is("-]") || first.count() != 1) {
        set.add(first);
        continue;
      }
      ++at_;
      const CodePoints last = parse_class_item();
      if (last.count() != 1) bad("a range that ends in a set");
      const char32_t from = first.ranges()[0].first, to = last.ranges()[0].first;
      if (to < from) bad("a range with its ends in the wrong order");
      set.add(from, to);
    }
    return negated ? set.complement() : set;
  }

  CodePoints parse_class_item() {
    if (at_end()) bad("a [ that is not closed");
    if (next_is("\\")) return parse_escape(true);
    const char32_t c = take_plain();
    return {c, c};
  }

  CodePoints parse_escape(bool in_class) {
    ++at_;
    if (at_end()) bad("an escape without its character");
    const char c = text_[at_];
    constexpr std::string_view kNames = "nrtfv0", kValues = "\n\r\t\f\v";
    if (c >= '1' && c <= '9') unsupported("a back reference");
    if (c == 'b' && in_class) {
      ++at_;
      return {'\b', '\b'};
    }
    if (c == 'p' || c == 'P') return parse_property(c == 'P');
    if (c == 'c') return parse_control();
    if (c == 'k') unsupported("a back reference");
    if (c == 'x' || c == 'u') return parse_hex();
    if (c == 'd' || c == 'D' || c == 'w' || c == 'W' || c == 's' || c == 'S') {
      ++at_;
      const CodePoints set = (c | 0x20) == 'd'   ? digits()
                             : (c | 0x20) == 'w' ? pattern_word_characters()
                                                 : white_space();
      return c < 'a' ? set.complement() : set;
    }
    if (const std::size_t i = kNames.find(c); i != std::string_view::npos) {
      ++at_;
      const auto value = i < kValues.size() ? static_cast<char32_t>(kValues[i]) : U'\0';
      return {value, value};
    }
    const char32_t plain = take_plain();
    if (plain != '_' && pattern_word_characters().contains(plain)) bad("an unknown escape");
    return {plain, plain};
  }

  CodePoints parse_property(bool negated) {
    ++at_;
    const std::size_t end = text_.find('}', at_);
    if (!next_is("{") || end == std::string_view::npos) bad("an incomplete escape");
    const auto set = unicode_property(text_.substr(at_ + 1, end - at_ - 1));
    if (!set) unsupported("this property");
    at_ = end + 1;
    return negated ? set->complement() : *set;
  }

  CodePoints parse_control() {
    ++at_;
    if (at_end() || !(CodePoints('a', 'z').contains(static_cast<char32_t>(text_[at_] | 0x20))))
      bad("an incomplete escape");
    const char32_t value = static_cast<unsigned char>(text_[at_++]) % 32u;
    return {value, value};
  }

  CodePoints parse_hex() {
    const bool braces = next_is("u{");
    const std::size_t begin = at_ + (braces ? 2 : 1);
    const std::size_t end = braces ? text_.find('}', begin) : begin + (text_[at_] == 'x' ? 2 : 4);
    if (end > text_.size() || end == begin || end - begin > 6) bad("an incomplete escape");
    char32_t value = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t digit = std::string_view("0123456789abcdef0123456789ABCDEF").find(text_[i]);
      if (digit == std::string_view::npos) bad("an escape with a digit that is none");
      value = value * 16 + static_cast<char32_t>(digit % 16);
    }
    if (value >= 0xD800 && value <= 0xDBFF && text_.substr(end).starts_with("\\u")) {
      at_ = end + 1;
      const char32_t low = parse_hex_digits();
      if (low < 0xDC00 || low > 0xDFFF) bad("half a character");
      const char32_t both = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
      return {both, both};
    }
    if (value > CodePoints::kLast || (value >= 0xD800 && value <= 0xDFFF)) {
      unsupported("an escape of half a character");
    }
    at_ = end + (braces ? 1 : 0);
    return {value, value};
  }

  char32_t parse_hex_digits() {  // after the u of \\u
    char32_t value = 0;
    ++at_;
    for (const std::size_t stop = at_ + 4; at_ < stop; ++at_) {
      const std::size_t digit =
          at_end() ? std::string_view::npos
                   : std::string_view("0123456789abcdef0123456789ABCDEF").find(text_[at_]);
      if (digit == std::string_view::npos) bad("an incomplete escape");
      value = value * 16 + static_cast<char32_t>(digit % 16);
    }
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

PatternNode parse_pattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    fail(Errc::LimitExceeded, "pattern: {} bytes, more than {}", pattern.size(), kMaxPatternBytes);
  }
  return PatternParser(pattern).run();
}

bool contains_kind(const PatternNode& node, PatternNode::Kind kind) {
  return node.kind == kind ||
         std::any_of(node.parts.begin(), node.parts.end(),
                     [&](const PatternNode& part) { return contains_kind(part, kind); });
}

CodePoints pattern_word_characters() {
  CodePoints set = digits();
  set.add('a', 'z');
  set.add('A', 'Z');
  set.add('_', '_');
  return set;
}

}  // namespace moeflux
