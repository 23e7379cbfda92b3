#include "text/grammar/gbnf.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "text/grammar/json_schema.h"

namespace moeflux {
namespace {

constexpr int kMaxNesting = 100;
constexpr std::uint32_t kMaxRepeats = 100'000;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

enum class Newlines { Skip, Stop };

// Names, literals, classes, numbers, comments and escapes of a GBNF text. Errors say line and
// column.
class GbnfReader {
 public:
  // BadInput unless the text is UTF-8.
  explicit GbnfReader(std::string_view text) : text_(text) {
    if (const std::size_t at = find_invalid_utf8(text); at != std::string_view::npos) {
      bad_at(at, "the text is not valid UTF-8");
    }
  }

  bool at_end() const { return at_ >= text_.size(); }
  bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  bool take(std::string_view what) {
    if (!next_is(what)) return false;
    at_ += what.size();
    return true;
  }

  // and comments
  void skip_blanks(Newlines newlines) {
    while (!at_end()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' ||
                 (newlines == Newlines::Skip && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  // "" when there is none
  std::string_view take_name() {
    const std::size_t begin = at_;
    while (!at_end() && is_name_character(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // at the opening quote
  std::string take_literal() {
    const std::size_t begin = at_++;
    std::string bytes;
    while (!take("\"")) {
      if (at_end() || next_is("\n")) bad_at(begin, "this literal has no closing quote");
      append_utf8(bytes, take_character("a literal"));
    }
    return bytes;
  }

  // at the opening bracket
  CodePoints take_class() {
    const std::size_t begin = at_++;
    const bool negated = take("^");
    CodePoints set;
    while (!take("]")) {
      if (at_end() || next_is("\n")) bad_at(begin, "this class has no closing bracket");
      const std::size_t item = at_;
      const char32_t first = take_character("a class");
      char32_t last = first;
      if (next_is("-") && !next_is("-]")) {
        ++at_;
        if (at_end()) bad_at(begin, "this class has no closing bracket");
        last = take_character("a class");
        if (last < first) bad_at(item, "this range is empty: its ends are in the wrong order");
      }
      set.add(first, last);
    }
    if (negated) return set.complement();
    if (set.empty()) bad_at(begin, "an empty class matches nothing");
    return set;
  }
  // A number of at most `max`; says what it is for when there is none.

  std::uint32_t take_number(std::uint32_t max, std::string_view what) {
    const std::size_t begin = at_;
    std::uint32_t value = 0;
    for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = value * 10 + static_cast<std::uint32_t>(text_[at_] - '0');
      if (value > max) bad_at(begin, fmt::format("{} is at most {}", what, max));
    }
    if (at_ == begin) bad(fmt::format("expected {}", what));
    return value;
  }

  std::size_t position() const { return at_; }
  [[noreturn]] void bad(std::string_view what) const { bad_at(at_, what); }

  [[noreturn]] void bad_at(std::size_t at, std::string_view what) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
    fail(Errc::BadInput, "grammar: line {}, column {}: {}", line, at - line_begin + 1, what);
  }

 private:
  char32_t take_character(std::string_view inside_of) {
    if (!take("\\")) {
      const Utf8Step step = decode_utf8(text_, at_);
      at_ += step.length;
      return step.code_point;
    }
    if (at_end()) bad("the text ends in an escape");
    const char c = text_[at_++];
    if (c == 'x') return take_hex(2);
    if (c == 'u') return take_hex(4);
    if (c == 'U') return take_hex(8);
    constexpr std::string_view kNames = "nrt\\\"[]-^/", kValues = "\n\r\t\\\"[]-^/";
    if (const std::size_t i = kNames.find(c); i != std::string_view::npos)
      return static_cast<char32_t>(kValues[i]);
    bad_at(at_ - 2, fmt::format("unknown escape in {}; write \\\\ for a backslash", inside_of));
  }

  char32_t take_hex(std::size_t digits) {
    const std::size_t begin = at_;
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      const char c = at_end() ? '\0' : text_[at_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) bad_at(begin, fmt::format("this escape needs {} hexadecimal digits", digits));
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > CodePoints::kLast || (value >= 0xD800 && value <= 0xDFFF)) {
      bad_at(begin, "this escape is not a character");
    }
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

class GbnfParser {
 public:
  GbnfParser(std::string_view text, const GbnfSchemas& schemas) : in_(text), schemas_(schemas) {}

  Grammar run() {
    in_.skip_blanks(Newlines::Skip);
    while (!in_.at_end()) {
      parse_rule();
      in_.skip_blanks(Newlines::Skip);
    }
    add_schemas();
    const auto root = rules_.find("root");
    if (root == rules_.end() || !root->second.defined) in_.bad("there is no rule named \"root\"");
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) {
        in_.bad_at(rule.first_use, fmt::format("rule \"{}\" is used but not defined", name));
      }
    }
    grammar_.set_root(root->second.id);
    return std::move(grammar_);
  }

 private:
  struct Rule {
    RuleId id;
    std::size_t first_use;
    bool defined = false;
  };

  Rule& rule_named(std::string_view name, std::size_t at) {
    const auto found = rules_.find(name);
    if (found != rules_.end()) return found->second;
    const RuleId id = grammar_.declare(std::string(name));
    return rules_.emplace(name, Rule{id, at}).first->second;
  }

  void parse_rule() {
    const std::size_t begin = in_.position();
    const std::string_view name = in_.take_name();
    if (name.empty()) in_.bad("expected the name of a rule (letters, digits, - and _)");
    in_.skip_blanks(Newlines::Stop);
    if (!in_.take("::=")) in_.bad(fmt::format("expected ::= after the rule name \"{}\"", name));
    in_.skip_blanks(Newlines::Skip);
    Rule& rule = rule_named(name, begin);
    if (rule.defined) in_.bad_at(begin, fmt::format("rule \"{}\" is defined twice", name));
    if (schemas_.contains(std::string(name))) {
      in_.bad_at(begin, fmt::format("rule \"{}\" is the name of a schema as well", name));
    }
    rule.defined = true;
    const RuleId id = rule.id;
    grammar_.define(id, parse_choice(0));
    if (!in_.at_end() && !in_.next_is("\n") && !in_.next_is("\r")) {
      in_.bad(in_.next_is(")") ? "this parenthesis closes nothing"
                               : "expected the end of the rule");
    }
  }

  ExprId parse_choice(int nesting) {
    if (nesting > kMaxNesting) in_.bad(fmt::format("nested deeper than {}", kMaxNesting));
    std::vector<ExprId> parts = {parse_sequence(nesting)};
    while (in_.take("|")) {
      in_.skip_blanks(Newlines::Skip);
      parts.push_back(parse_sequence(nesting));
    }
    return grammar_.choice(std::move(parts));
  }

  ExprId parse_sequence(int nesting) {
    const Newlines newlines = nesting > 0 ? Newlines::Skip : Newlines::Stop;
    std::vector<ExprId> parts;
    while (true) {
      in_.skip_blanks(newlines);
      ExprId part = 0;
      if (in_.next_is("\"")) {
        part = grammar_.literal(in_.take_literal());
      } else if (in_.next_is("[")) {
        part = grammar_.set(in_.take_class());
      } else if (in_.take(".")) {
        part = grammar_.set(CodePoints::all());
      } else if (in_.next_is("(")) {
        part = parse_group(nesting);
      } else {
        const std::size_t begin = in_.position();
        const std::string_view name = in_.take_name();
        if (name.empty()) break;
        part = grammar_.rule(rule_named(name, begin).id);
      }
      parts.push_back(parse_counts(part, newlines));
    }
    if (parts.empty()) return grammar_.literal("");
    return grammar_.sequence(std::move(parts));
  }

  ExprId parse_group(int nesting) {
    const std::size_t begin = in_.position();
    in_.take("(");
    const ExprId inside = parse_choice(nesting + 1);
    if (in_.at_end()) in_.bad_at(begin, "this parenthesis is not closed");
    if (!in_.take(")")) in_.bad("expected ) or more of the group");
    return inside;
  }

  ExprId parse_counts(ExprId part, Newlines newlines) {
    while (true) {
      in_.skip_blanks(newlines);
      if (in_.take("*")) {
        part = grammar_.repeat(part, 0, Grammar::kUnbounded);
      } else if (in_.take("+")) {
        part = grammar_.repeat(part, 1, Grammar::kUnbounded);
      } else if (in_.take("?")) {
        part = grammar_.optional(part);
      } else if (in_.next_is("{")) {
        part = parse_braces(part);
      } else {
        return part;
      }
    }
  }

  ExprId parse_braces(ExprId part) {
    const std::size_t begin = in_.position();
    in_.take("{");
    in_.skip_blanks(Newlines::Stop);
    const std::uint32_t min =
        in_.next_is(",") ? 0 : in_.take_number(kMaxRepeats, "a count of repetitions");
    std::uint32_t max = min;
    in_.skip_blanks(Newlines::Stop);
    if (in_.take(",")) {
      in_.skip_blanks(Newlines::Stop);
      max = in_.next_is("}") ? Grammar::kUnbounded
                             : in_.take_number(kMaxRepeats, "a count of repetitions");
      in_.skip_blanks(Newlines::Stop);
    }
    if (!in_.take("}")) in_.bad("expected } after the counts");
    if (max < min) in_.bad_at(begin, "these counts are in the wrong order");
    return grammar_.repeat(part, min, max);
  }

  void add_schemas() {
    for (const auto& [name, schema] : schemas_) {
      const auto used = rules_.find(name);
      if (used == rules_.end()) continue;
      used->second.defined = true;
      grammar_.define(used->second.id, add_json_schema(grammar_, schema, {.origin = name}));
    }
  }

  GbnfReader in_;
  const GbnfSchemas& schemas_;
  Grammar grammar_;
  std::map<std::string, Rule, std::less<>> rules_;
};

}  // namespace

Grammar parse_gbnf(std::string_view text, const GbnfSchemas& schemas) {
  if (text.size() > kMaxGbnfBytes) {
    fail(Errc::LimitExceeded, "grammar: {} bytes, more than the limit of {}", text.size(),
         kMaxGbnfBytes);
  }
  return GbnfParser(text, schemas).run();
}

}  // namespace moeflux
