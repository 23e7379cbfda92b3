// A context-free grammar as data: named rules over expressions of characters. GBNF text and JSON
// schemas become one of these; compile_grammar() (byte_automaton.h) makes it runnable.
//
// Expressions live in the grammar and are named by ids; an id may be used in several places. Rules
// are declared first and defined later, so that they can refer to each other.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/code_points.h"

namespace moeflux {

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

  const GrammarExpr& expr(ExprId id) const { return exprs_[id]; }
  std::size_t n_exprs() const { return exprs_.size(); }
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
  RuleId root_ = 0;
};

}  // namespace moeflux
