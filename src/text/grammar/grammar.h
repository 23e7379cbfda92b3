// A context-free grammar as data: named rules over expressions of characters. GBNF text and JSON
// schemas become one of these; compile_grammar() (byte_automaton.h) makes it runnable.
//
// Expressions live in the grammar and are named by ids; an id may be used in several places. Rules
// are declared first and defined later, so that they can refer to each other.
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moeflux {

// A set of Unicode code points as sorted ranges. Surrogates are never members: UTF-8 has none.
class CodePoints {
 public:
  struct Range {
    char32_t first, last;
    bool operator==(const Range&) const = default;
  };
  static constexpr char32_t kLast = 0x10FFFF;

  CodePoints() = default;
  CodePoints(char32_t first, char32_t last) { add(first, last); }
  static CodePoints all() { return {0, kLast}; }
  static CodePoints of(std::u32string_view characters);

  void add(char32_t first, char32_t last);  // first <= last <= kLast
  void add(const CodePoints& other);
  CodePoints complement() const;
  CodePoints without(const CodePoints& other) const;
  CodePoints common(const CodePoints& other) const;

  bool contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  std::uint32_t count() const;
  const std::vector<Range>& ranges() const { return ranges_; }  // ascending, never adjacent
  bool operator==(const CodePoints&) const = default;

 private:
  void add_plain(char32_t first, char32_t last);
  std::vector<Range> ranges_;
};

// The UTF-8 encodings of a set: every element is a sequence of 1 to 4 ranges of bytes, and the
// sequences have no byte string in common.
struct ByteSpan {
  std::uint8_t first, last;
  auto operator<=>(const ByteSpan&) const = default;
};
std::vector<std::vector<ByteSpan>> utf8_sequences(const CodePoints& set);

using ExprId = std::uint32_t;
using RuleId = std::uint32_t;

struct GrammarExpr {
  enum class Kind : std::uint8_t {
    Literal,   // these bytes; "" is the empty text
    Set,       // one character; the empty set matches nothing at all
    Sequence,  // the parts one after the other
    Choice,    // one of the parts
    Repeat,    // parts[0], min to max times
    Rule,
  };
  Kind kind;
  std::string literal = {};
  CodePoints set = {};
  std::vector<ExprId> parts = {};
  std::uint32_t min = 0, max = 0;
  RuleId rule = 0;
};

class Grammar {
 public:
  static constexpr std::uint32_t kUnbounded = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t kMaxExprs = 1'000'000;
  static constexpr std::size_t kMaxRules = 100'000;

  ExprId literal(std::string_view bytes);
  ExprId set(CodePoints characters);
  ExprId sequence(std::vector<ExprId> parts);
  ExprId choice(std::vector<ExprId> parts);
  ExprId repeat(ExprId part, std::uint32_t min, std::uint32_t max);
  ExprId optional(ExprId part) { return repeat(part, 0, 1); }
  ExprId rule(RuleId id);
  ExprId nothing() { return set({}); }

  // The name is for messages; it need not be unique.
  RuleId declare(std::string name);
  void define(RuleId id, ExprId body);
  RuleId declare(std::string name, ExprId body);
  void set_root(RuleId id) { root_ = id; }

  // What the grammar does not keep of what it was made from: paths of keywords of a schema.
  void add_note(std::string note) { notes_.insert(std::move(note)); }
  const std::set<std::string>& notes() const { return notes_; }

  const GrammarExpr& expr(ExprId id) const { return exprs_[id]; }
  std::size_t n_rules() const { return rules_.size(); }
  const std::string& name(RuleId id) const { return rules_[id].name; }
  ExprId body(RuleId id) const { return rules_[id].body; }  // defined by now
  RuleId root() const { return root_; }

 private:
  struct Rule {
    std::string name;
    ExprId body;
  };
  ExprId add(GrammarExpr expr);
  std::vector<GrammarExpr> exprs_;
  std::vector<Rule> rules_;
  std::set<std::string> notes_;
  RuleId root_ = 0;
};

}  // namespace moeflux
