#include "text/grammar/grammar.h"

#include <utility>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr ExprId kUndefined = std::numeric_limits<ExprId>::max();

}  // namespace

ExprId Grammar::add(GrammarExpr expr) {
  if (exprs_.size() >= kMaxExprs) {
    fail(Errc::LimitExceeded, "grammar: more than {} expressions; simplify it", kMaxExprs);
  }
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId Grammar::literal(std::string_view bytes) {
  return add({.kind = GrammarExpr::Kind::Literal, .literal = std::string(bytes)});
}

ExprId Grammar::set(CodePoints characters) {
  return add({.kind = GrammarExpr::Kind::Set, .set = std::move(characters)});
}

ExprId Grammar::sequence(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = GrammarExpr::Kind::Sequence, .parts = std::move(parts)});
}

ExprId Grammar::choice(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = GrammarExpr::Kind::Choice, .parts = std::move(parts)});
}

ExprId Grammar::repeat(ExprId part, std::uint32_t min, std::uint32_t max) {
  MOEFLUX_ASSERT(min <= max);
  return add({.kind = GrammarExpr::Kind::Repeat, .parts = {part}, .min = min, .max = max});
}

ExprId Grammar::rule(RuleId id) {
  MOEFLUX_ASSERT(id < rules_.size());
  return add({.kind = GrammarExpr::Kind::Rule, .rule = id});
}

RuleId Grammar::declare(std::string name) {
  if (rules_.size() >= kMaxRules) {
    fail(Errc::LimitExceeded, "grammar: more than {} rules; simplify it", kMaxRules);
  }
  rules_.push_back({std::move(name), kUndefined});
  return static_cast<RuleId>(rules_.size() - 1);
}

void Grammar::define(RuleId id, ExprId body) {
  MOEFLUX_ASSERT(id < rules_.size() && rules_[id].body == kUndefined && body < exprs_.size());
  rules_[id].body = body;
}

RuleId Grammar::declare(std::string name, ExprId body) {
  const RuleId id = declare(std::move(name));
  define(id, body);
  return id;
}

}  // namespace moeflux
