#include <array>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/regex_property.h"

namespace moeflux {
namespace {

// ---- escapes and classes

constexpr int kMaxClassDepth = 16;

// A cursor over a pattern. Reading past the end is the pattern's error, never ours.
struct PatternReader {
  std::string_view text;
  std::size_t at;
  std::string_view origin;

  bool at_end() const { return at >= text.size(); }
  bool starts_with(std::string_view prefix) const { return text.substr(at).starts_with(prefix); }
  char peek(std::size_t ahead = 0) const {
    if (at + ahead >= text.size()) bad("the pattern ends too early");
    return text[at + ahead];
  }
  char take() {
    const char c = peek();
    ++at;
    return c;
  }
  std::string_view take_character() {  // one UTF-8 character
    peek();
    const Utf8Step step = decode_utf8(text, at);
    const std::string_view character = text.substr(at, step.length);
    at += step.length;
    return character;
  }
  [[noreturn]] void bad(std::string_view what) const {
    fail(Errc::BadInput, "{}: bad regular expression at byte {}: {}", origin, at, what);
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    fail(Errc::Unsupported, "{}: the regular expression uses {} at byte {}, which is not supported",
         origin, what, at);
  }
};

// A set as PCRE2 writes it: `items` between [ and ], or, for what no single bracket can say, a
// group that matches one character.
struct CharSet {
  std::string items;
  std::string group;     // used instead of items when not empty
  bool negated = false;  // of items

  std::string standalone() const {
    if (!group.empty()) return group;
    return (negated ? "[^" : "[") + items + "]";
  }
};

enum class SetPlace { Standalone, InBracket };

CharSet property_set(PatternReader& in, bool negated) {
  if (in.take() != '{') in.bad("\\p needs a name in braces");
  if (!in.at_end() && in.peek() == '^') {
    in.take();
    negated = !negated;
  }
  std::string name;
  while (in.peek() != '}') {
    const char c = in.take();
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != ' ' && c != '-') {
      in.bad("\\p{..} holds something that is not a name");
    }
    name += c;
  }
  in.take();
  return {property_items(name), "", negated};
}

// \s \S \w \W \d \D \h \H \p{..} \P{..} at the cursor; nothing, and nothing consumed, when
// something else stands there.
std::optional<CharSet> take_set_escape(PatternReader& in, SetPlace place) {
  const char c = in.peek(1);
  CharSet set;
  set.negated = std::isupper(static_cast<unsigned char>(c)) != 0;
  switch (std::tolower(static_cast<unsigned char>(c))) {
    case 's':
      set.items = space_items();
      break;
    case 'w':
      set.items = place == SetPlace::InBracket ? word_items() : standalone_word_items();
      break;
    case 'd':
      set.items = digit_items();
      break;
    case 'h':
      set.items = hex_digit_items();
      break;
    case 'p':
      in.at += 2;
      return property_set(in, set.negated);
    default:
      return std::nullopt;
  }
  in.at += 2;
  return set;
}

// An escape that means one character (\n, \x{..}, \u...., \-), as PCRE2 writes it in and out of
// brackets.
std::string take_character_escape(PatternReader& in) {
  in.take();  // the backslash
  const char c = in.peek();
  const auto hex_digits = [&](std::size_t n) {
    std::string out;
    for (std::size_t i = 0; i < n; ++i) {
      const char digit = in.take();
      if (!std::isxdigit(static_cast<unsigned char>(digit)))
        in.bad("a hexadecimal digit is missing");
      out += digit;
    }
    return "\\x{" + out + "}";
  };
  const auto octal = [&] {
    unsigned value = 0;
    for (int i = 0; i < 2 && !in.at_end() && in.peek() >= '0' && in.peek() <= '7'; ++i) {
      value = value * 8 + static_cast<unsigned>(in.take() - '0');
    }
    return fmt::format("\\x{{{:02x}}}", value);
  };
  if (!std::isalnum(static_cast<unsigned char>(c))) {
    std::string out(static_cast<unsigned char>(c) < 0x80 ? "\\" : "");
    return out.append(in.take_character());
  }
  in.take();
  switch (c) {
    case 't':
    case 'n':
    case 'r':
    case 'f':
    case 'a':
    case 'e':
      return std::string("\\") + c;
    case 'v':
      return "\\x{0b}";
    case '0':
      return octal();
    case 'u':
      return hex_digits(4);
    case 'x': {
      if (in.at_end() || in.peek() != '{') return hex_digits(2);
      std::string out = "\\x";
      while (in.peek() != '}') out += in.take();
      return out + in.take();
    }
    default:
      in.unsupported(std::string("\\") + c);
  }
}

// One operand of an intersection: what a bracket can say, and what it cannot, as alternatives.
struct Union {
  std::string items;
  std::vector<std::string> groups;
  // The last item is one character, so that a '-' after it makes a range.
  bool can_start_range = false;

  std::string standalone() const {
    std::string out = items.empty() ? "" : "[" + items + "]";
    for (const std::string& group : groups) out += (out.empty() ? "" : "|") + group;
    return "(?:" + (out.empty() ? std::string("(?!)") : out) + ")";
  }
  void add(const CharSet& set) {
    can_start_range = false;
    if (set.group.empty() && !set.negated) {
      items += set.items;
    } else {
      groups.push_back(set.standalone());
    }
  }
};

std::string take_class_character(PatternReader& in) {
  if (in.starts_with("\\b")) {
    in.at += 2;
    return "\\x{08}";
  }
  if (in.peek() == '\\') return take_character_escape(in);
  // Items of several classes may be joined into one bracket, where a ^ could come first.
  std::string out(in.peek() == '^' ? "\\" : "");
  return out.append(in.take_character());
}

// Whether what follows a '-' is no character, so that the '-' stands for itself.
bool ends_a_range_early(const PatternReader& in) {
  if (in.peek() == ']' || in.peek() == '[' || in.starts_with("&&")) return true;
  return in.peek() == '\\' &&
         std::string_view("sSwWdDhHpP").find(in.peek(1)) != std::string_view::npos;
}

CharSet parse_class(PatternReader& in, int depth);

void parse_class_item(PatternReader& in, Union& set, int depth) {
  if (in.starts_with("[:")) {
    const std::size_t end = in.text.find(":]", in.at + 2);
    if (end != std::string_view::npos) {
      std::string_view name = in.text.substr(in.at + 2, end - in.at - 2);
      const bool negated = name.starts_with('^');
      if (negated) name.remove_prefix(1);
      if (std::string items = posix_items(name); !items.empty()) {
        set.add({std::move(items), "", negated});
        in.at = end + 2;
        return;
      }
    }
  }
  if (in.peek() == '[') {
    set.add(parse_class(in, depth + 1));
    return;
  }
  if (in.peek() == '-') {
    in.take();
    const bool range = set.can_start_range && !ends_a_range_early(in);
    set.items += range ? "-" : "\\-";
    set.can_start_range = false;
    if (!range) return;
    set.items += take_class_character(in);
    return;
  }
  if (const auto escaped =
          in.peek() == '\\' ? take_set_escape(in, SetPlace::InBracket) : std::nullopt) {
    // A negated set becomes a group; \S, the common one, is spelled out.
    const bool not_space = escaped->negated && escaped->items == space_items();
    set.add(not_space ? CharSet{not_space_items(), "", false} : *escaped);
    return;
  }
  set.items += take_class_character(in);
  set.can_start_range = true;
}

CharSet parse_class(PatternReader& in, int depth) {
  if (depth > kMaxClassDepth) in.bad("character classes are nested too deeply");
  in.take();  // [
  const bool negated = !in.at_end() && in.peek() == '^';
  if (negated) in.take();
  std::vector<Union> operands(1);
  if (!in.at_end() && in.peek() == ']') {  // a ] that comes first is literal
    in.take();
    operands.back().items += "\\]";
  }
  while (in.peek() != ']') {
    if (in.starts_with("&&")) {
      in.at += 2;
      operands.emplace_back();
    } else {
      parse_class_item(in, operands.back(), depth);
    }
  }
  in.take();
  if (operands.size() == 1 && operands[0].groups.empty()) {
    return {operands[0].items, "", negated};
  }
  // Every operand but the last looks ahead; the last takes the character.
  std::string group;
  for (std::size_t i = 0; i + 1 < operands.size(); ++i)
    group += "(?=" + operands[i].standalone() + ")";
  group += operands.back().standalone();
  return {"", negated ? "(?:(?!" + group + ")(?s:.))" : "(?:" + group + ")", false};
}

// [..] at the cursor, as a PCRE2 atom.
std::string translate_class(PatternReader& in) {
  return parse_class(in, 0).standalone();
}

// ---- patterns

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view origin) : in_{pattern, 0, origin} {}

  std::string run() {
    while (!in_.at_end()) step();
    return std::move(out_);
  }

 private:
  void step() {
    switch (in_.peek()) {
      case '\\':
        begin_atom();
        return escape();
      case '[':
        begin_atom();
        out_ += translate_class(in_);
        return;
      case '(':
        return open_group();
      case ')':
        close_group();
        return;
      case '*':
      case '+':
      case '?':
        // A further + or ? makes it possessive or lazy in both dialects.
        out_ += in_.take();
        if (!in_.at_end() && (in_.peek() == '+' || in_.peek() == '?')) out_ += in_.take();
        return;
      case '{':
        if (interval()) return;
        begin_atom();
        out_ += "\\{";
        in_.take();
        return;
      default:
        begin_atom();
        out_ += in_.take_character();
    }
  }

  void begin_atom() { atom_ = out_.size(); }

  // x{n,m} and what follows it. PCRE2 reads x{n,m}+ as possessive and x{n}? as lazy; here they
  // repeat the repetition.
  bool interval() {
    const std::size_t start = in_.at;
    in_.take();
    const std::string low = digits();
    bool range = false;
    std::string high;
    if (!in_.at_end() && in_.peek() == ',') {
      in_.take();
      range = true;
      high = digits();
    }
    if (in_.at_end() || in_.peek() != '}' || (low.empty() && high.empty())) {
      in_.at = start;
      return false;  // a literal brace
    }
    in_.take();
    const std::string bounds =
        "{" + (low.empty() ? "0" : low) + (range ? "," + high : std::string()) + "}";
    const char next = in_.at_end() ? '\0' : in_.peek();
    if (next == '+' || (next == '?' && !range)) {
      out_.insert(atom_, "(?:");
      out_ += bounds + ")" + in_.take();
    } else {
      out_ += bounds;
      if (next == '?') out_ += in_.take();
    }
    return true;
  }

  std::string digits() {
    std::string out;
    while (!in_.at_end() && is_digit(in_.peek())) out += in_.take();
    return out;
  }

  void open_group() {
    groups_.push_back(out_.size());
    if (in_.starts_with("(*")) in_.unsupported("(*...)");
    if (in_.starts_with("(?#")) {
      groups_.pop_back();
      while (!in_.at_end() && in_.peek() != ')') in_.take();
      if (!in_.at_end()) in_.take();
      return;
    }
    out_ += in_.take();
    if (in_.at_end() || in_.peek() != '?') return;
    out_ += in_.take();
    // (?imx-imx) and (?imx-imx: ; the m of Oniguruma is the s of PCRE2: the dot matches a newline.
    while (!in_.at_end() &&
           (std::isalpha(static_cast<unsigned char>(in_.peek())) || in_.peek() == '-')) {
      const char flag = in_.take();
      if (flag != 'i' && flag != 'm' && flag != 'x' && flag != '-') {
        in_.unsupported(std::string("(?") + flag);
      }
      out_ += flag == 'm' ? 's' : flag;
    }
    for (const char* marker : {"<=", "<!", "=", "!", ">", ":"}) {
      if (!in_.starts_with(marker)) continue;
      out_ += marker;
      in_.at += std::string_view(marker).size();
      return;
    }
    if (in_.starts_with("<")) {  // a named group
      while (!in_.at_end() && in_.peek() != '>') out_ += in_.take();
      if (!in_.at_end()) out_ += in_.take();
    } else if (in_.starts_with("~")) {
      in_.unsupported("(?~");
    }
  }

  void close_group() {
    if (!groups_.empty()) {
      atom_ = groups_.back();
      groups_.pop_back();
    }
    out_ += in_.take();
  }

  void escape() {
    if (const std::optional<CharSet> set = take_set_escape(in_, SetPlace::Standalone)) {
      out_ += set->standalone();
      return;
    }
    const char c = in_.peek(1);
    switch (c) {
      case 'b':
      case 'B': {
        const std::string word = fmt::format("[{}]", standalone_word_items());
        out_ += c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                         : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
        in_.at += 2;
        return;
      }
      case 'A':
      case 'Z':
      case 'z':
      case 'G':
      case 'R':
      case 'X':
      case 'k':
      case 'g':
        out_ += '\\';
        out_ += c;
        in_.at += 2;
        return;
      default:
        if (c >= '1' && c <= '9') {
          out_ += '\\';
          in_.at += 1;
          out_ += digits();
          return;
        }
        out_ += take_character_escape(in_);
    }
  }

  PatternReader in_;
  std::string out_;
  std::size_t atom_ = 0;             // where in out_ the last atom began
  std::vector<std::size_t> groups_;  // where in out_ the open groups began
};

}  // namespace

std::string to_pcre2_syntax(std::string_view pattern, std::string_view origin) {
  return Translator(pattern, origin).run();
}

}  // namespace moeflux
