// The `pattern` and the `format` of strings.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "text/grammar/json_pieces.h"

namespace moeflux {
namespace {

// ---- formats

#define MOEFLUX_DATE                                                                              \
  "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|" \
  "02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|"                        \
  "(?:[02468][048]|[13579][26])00)-02-29)"
#define MOEFLUX_TIME \
  "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define MOEFLUX_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define MOEFLUX_HOST MOEFLUX_LABEL "(?:\\." MOEFLUX_LABEL "){0,5}"
#define MOEFLUX_OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"

struct Format {
  std::string_view name, pattern;
};

constexpr Format kFormats[] = {
    {"date", "^" MOEFLUX_DATE "$"},
    {"time", "^" MOEFLUX_TIME "$"},
    {"date-time", "^" MOEFLUX_DATE "T" MOEFLUX_TIME "$"},
    {"duration",
     "^P(?:\\d{1,4}W|\\d{1,4}D(?:T\\d{1,4}[HMS])?|T(?:\\d{1,4}H(?:\\d{1,4}M(?:\\d{1,4}S)?)?|"
     "\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,4}S))$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"email", "^[A-Za-z0-9_+-]{1,30}(?:\\.[A-Za-z0-9_+-]{1,30}){0,2}@" MOEFLUX_LABEL
              "(?:\\." MOEFLUX_LABEL "){1,4}$"},
    {"hostname", "^" MOEFLUX_HOST "$"},
    {"ipv4", "^(?:" MOEFLUX_OCTET "\\.){3}" MOEFLUX_OCTET "$"},
    {"ipv6", "^(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
    {"uri",
     "^[a-z][a-z0-9+.-]{0,15}://" MOEFLUX_HOST
     "(?::[1-9]\\d{0,3})?(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]{0,200}){0,20}"
     "(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/-]{0,200})?(?:#[A-Za-z0-9._~!$&'()*+,;=:@/-]{0,100})?$"},
};

// ---- patterns

struct PatternNode {
  enum class Kind { Set, Sequence, Choice, Repeat };
  Kind kind;
  CodePoints set = {};
  std::vector<PatternNode> parts = {};
  std::uint32_t min = 0, max = 0;
};

using Kind = PatternNode::Kind;
constexpr std::uint32_t kUnbounded = Grammar::kUnbounded;
constexpr std::size_t kMaxPatternBytes = 8192;
constexpr int kMaxNesting = 50;
constexpr std::uint32_t kMaxRepeats = 10'000;

CodePoints digits() {
  return {'0', '9'};
}

CodePoints word() {
  CodePoints set = digits();
  set.add('a', 'z');
  set.add('A', 'Z');
  set.add('_', '_');
  return set;
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

  static PatternNode anything() {
    return {.kind = Kind::Repeat,
            .parts = {{.kind = Kind::Set, .set = CodePoints::all()}},
            .min = 0,
            .max = kUnbounded};
  }

  PatternNode parse_choice(int nesting) {
    if (nesting > kMaxNesting) bad("groups nested too deep");
    PatternNode choice = {.kind = Kind::Choice};
    do {
      choice.parts.push_back(parse_sequence(nesting));
    } while (take("|"));
    return choice.parts.size() == 1 ? std::move(choice.parts[0]) : choice;
  }

  PatternNode parse_sequence(int nesting) {
    PatternNode sequence = {.kind = Kind::Sequence};
    bool anchored = false;
    if (next_is("^")) {
      if (nesting > 0) unsupported("^ inside of a group");
      anchored = take("^");
    }
    if (nesting == 0 && !anchored) sequence.parts.push_back(anything());
    while (!at_end() && !next_is("|") && !next_is(")")) {
      if (next_is("^")) unsupported("^ in the middle");
      if (take("$")) {
        if (nesting > 0) unsupported("$ inside of a group");
        if (!at_end() && !next_is("|")) unsupported("$ in the middle");
        return sequence;
      }
      PatternNode atom = parse_atom(nesting);
      sequence.parts.push_back(parse_counts(std::move(atom)));
    }
    if (nesting == 0) sequence.parts.push_back(anything());
    return sequence;
  }

  PatternNode parse_atom(int nesting) {
    if (take("(")) return parse_group(nesting);
    if (next_is("[")) return {.kind = Kind::Set, .set = parse_class()};
    if (take(".")) {
      return {.kind = Kind::Set, .set = CodePoints::of(U"\n\r\u2028\u2029").complement()};
    }
    if (next_is("*") || next_is("+") || next_is("?") || next_is("{")) bad("nothing to repeat");
    if (next_is("\\")) return {.kind = Kind::Set, .set = parse_escape(false)};
    const char32_t c = take_plain();
    return {.kind = Kind::Set, .set = CodePoints(c, c)};
  }

  PatternNode parse_group(int nesting) {
    if (take("?")) {
      if (next_is("=") || next_is("!") || next_is("<=") || next_is("<!")) {
        unsupported("look-around");
      }
      if (take("<")) {
        while (!at_end() && !take(">")) ++at_;
      } else if (!take(":")) {
        unsupported("this kind of group");
      }
    }
    PatternNode inside = parse_choice(nesting + 1);
    if (!take(")")) bad("a ( that is not closed");
    return inside;
  }

  PatternNode parse_counts(PatternNode atom) {
    std::uint32_t min = 0, max = kUnbounded;
    if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (take("{")) {
      min = take_number();
      max = min;
      if (take(",")) max = next_is("}") ? kUnbounded : take_number();
      if (!take("}")) bad("expected }");
      if (max < min) bad("counts in the wrong order");
    } else if (!take("*")) {
      return atom;
    }
    if (!take("?") && next_is("+")) unsupported("a possessive count");
    return {.kind = Kind::Repeat, .parts = {std::move(atom)}, .min = min, .max = max};
  }

  std::uint32_t take_number() {
    const std::size_t begin = at_;
    std::uint32_t value = 0;
    for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = value * 10 + static_cast<std::uint32_t>(text_[at_] - '0');
      if (value > kMaxRepeats) bad("too many repetitions");
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
    if (c == 'b' || c == 'B') unsupported("\\b");
    if (c == 'p' || c == 'P' || c == 'k' || c == 'c') unsupported("this escape");
    if (c == 'x' || c == 'u') return parse_hex();
    if (c == 'd' || c == 'D' || c == 'w' || c == 'W' || c == 's' || c == 'S') {
      ++at_;
      const CodePoints set = (c | 0x20) == 'd'   ? digits()
                             : (c | 0x20) == 'w' ? word()
                                                 : white_space();
      return c < 'a' ? set.complement() : set;
    }
    if (const std::size_t i = kNames.find(c); i != std::string_view::npos) {
      ++at_;
      const auto value = i < kValues.size() ? static_cast<char32_t>(kValues[i]) : U'\0';
      return {value, value};
    }
    const char32_t plain = take_plain();
    if (word().contains(plain)) bad("an unknown escape");
    return {plain, plain};
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
    if (value > CodePoints::kLast || (value >= 0xD800 && value <= 0xDFFF)) {
      unsupported("an escape of half a character");
    }
    at_ = end + (braces ? 1 : 0);
    return {value, value};
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

PatternNode parse_pattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    fail(Errc::LimitExceeded, "pattern: {} bytes, more than {}", pattern.size(), kMaxPatternBytes);
  }
  return PatternParser(pattern).run();
}

std::uint64_t times(std::uint64_t length, std::uint64_t count) {
  if (length == 0 || count == 0) return 0;
  if (length >= kUnbounded || count >= kUnbounded) return kUnbounded;
  return std::min<std::uint64_t>(length * count, kUnbounded);
}

LengthRange pattern_length(const PatternNode& node) {
  LengthRange total = {0, 0};
  switch (node.kind) {
    case Kind::Set:
      return {1, 1};
    case Kind::Sequence:
      for (const PatternNode& part : node.parts) {
        const LengthRange one = pattern_length(part);
        total.min = std::min<std::uint64_t>(total.min + one.min, kUnbounded);
        total.max = std::min<std::uint64_t>(total.max + one.max, kUnbounded);
      }
      return total;
    case Kind::Choice:
      total = {kUnbounded, 0};
      for (const PatternNode& part : node.parts) {
        const LengthRange one = pattern_length(part);
        total = {std::min(total.min, one.min), std::max(total.max, one.max)};
      }
      return total;
    case Kind::Repeat:
      break;
  }
  const LengthRange one = pattern_length(node.parts[0]);
  return {times(one.min, node.min), times(one.max, node.max)};
}

// Of x* and the like, alone or followed by nothing else: x as often as the length asks for.
bool bound_by_count(PatternNode& node, const LengthRange& wanted) {
  PatternNode* repeat = &node;
  while (repeat->kind == Kind::Sequence && repeat->parts.size() == 1) repeat = &repeat->parts[0];
  if (repeat->kind != Kind::Repeat) return false;
  const LengthRange one = pattern_length(repeat->parts[0]);
  if (one.min != 1 || one.max != 1) return false;
  const std::uint64_t min = std::max<std::uint64_t>(repeat->min, wanted.min);
  const std::uint64_t max = std::min<std::uint64_t>(repeat->max, wanted.max);
  if (min > max) return false;
  repeat->min = static_cast<std::uint32_t>(min);
  repeat->max = static_cast<std::uint32_t>(max);
  return true;
}

ExprId emit(Grammar& g, JsonPieces& pieces, const PatternNode& node) {
  if (node.kind == Kind::Set) return pieces.character(node.set);
  std::vector<ExprId> parts;
  for (const PatternNode& part : node.parts) parts.push_back(emit(g, pieces, part));
  if (node.kind == Kind::Repeat) return g.repeat(parts[0], node.min, node.max);
  if (node.kind == Kind::Choice) return g.choice(std::move(parts));
  return parts.empty() ? g.literal("") : g.sequence(std::move(parts));
}

}  // namespace

std::optional<std::string_view> format_pattern(std::string_view format) {
  for (const Format& known : kFormats) {
    if (known.name == format) return known.pattern;
  }
  return std::nullopt;
}

std::string_view format_names() {
  return "date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri";
}

ExprId add_pattern(Grammar& grammar, JsonPieces& pieces, std::string_view text,
                   const LengthRange& length) {
  PatternNode pattern = parse_pattern(text);
  const LengthRange own = pattern_length(pattern);
  const bool inside = own.min >= length.min && own.max <= length.max;
  if (!inside && !bound_by_count(pattern, length)) {
    fail(Errc::Unsupported,
         "pattern allows lengths {} to {}, minLength and maxLength others; write the length into "
         "the pattern, as in ^[a-z]{{3,8}}$",
         own.min, own.max >= kUnbounded ? "any" : std::to_string(own.max));
  }
  const ExprId quote = grammar.literal("\"");
  return grammar.sequence({quote, emit(grammar, pieces, pattern), quote});
}

}  // namespace moeflux
