#include "text/tokenizer/regex_class.h"

#include <cctype>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/regex_property.h"

namespace moeflux {
namespace {

constexpr int kMaxClassDepth = 16;

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

// One operand of an intersection: what a bracket can say, and what it cannot, as alternatives.
struct Union {
  std::string items;
  std::vector<std::string> groups;
  bool can_start_range =
      false;  // the last item is one character, so that a '-' after it makes a range

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

}  // namespace

char PatternReader::peek(std::size_t ahead) const {
  if (at + ahead >= text.size()) bad("the pattern ends too early");
  return text[at + ahead];
}

char PatternReader::take() {
  const char c = peek();
  ++at;
  return c;
}

std::string_view PatternReader::take_character() {
  peek();
  const Utf8Step step = decode_utf8(text, at);
  const std::string_view character = text.substr(at, step.length);
  at += step.length;
  return character;
}

void PatternReader::bad(std::string_view what) const {
  fail(Errc::BadInput, "{}: bad regular expression at byte {}: {}", origin, at, what);
}

void PatternReader::unsupported(std::string_view what) const {
  fail(Errc::Unsupported, "{}: the regular expression uses {} at byte {}, which is not supported",
       origin, what, at);
}

std::string CharSet::standalone() const {
  if (!group.empty()) return group;
  return (negated ? "[^" : "[") + items + "]";
}

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

std::string translate_class(PatternReader& in) {
  return parse_class(in, 0).standalone();
}

}  // namespace moeflux
