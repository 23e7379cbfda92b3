#include "text/grammar/automaton_draft.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr int kMaxExprDepth = 1000;
constexpr std::uint32_t kCopiesWithoutRule = 2;
constexpr std::size_t kMaxMarkers = 256;
using Kind = GrammarExpr::Kind;

}  // namespace

AutomatonDraft::AutomatonDraft(const Grammar& grammar, std::span<const GrammarMarker> markers,
                               std::size_t max_states)
    : grammar_(grammar), markers_(markers), max_states_(max_states) {
  find_empty_rules();
  root_may_be_empty = empty_[grammar.root()] != 0;
  rule_index(grammar.root());
  compile_rules();
}

AutomatonDraft::State AutomatonDraft::new_node() {
  if (nodes.size() >= max_states_) {
    fail(Errc::LimitExceeded,
         "grammar: more than {} states in rule \"{}\"; use smaller counts of repetition",
         max_states_, names.back());
  }
  nodes.emplace_back();
  return static_cast<State>(nodes.size() - 1);
}

RuleId AutomatonDraft::rule_index(RuleId grammar_rule) {
  const auto [at, is_new] = index_.try_emplace(grammar_rule, static_cast<RuleId>(starts.size()));
  if (is_new) {
    names.push_back(grammar_.name(grammar_rule));
    starts.push_back(new_node());
    to_do_.emplace_back(at->second, grammar_.body(grammar_rule));
  }
  return at->second;
}

RuleId AutomatonDraft::part_index(ExprId part) {
  const auto [at, is_new] = part_index_.try_emplace(part, static_cast<RuleId>(starts.size()));
  if (is_new) {
    names.push_back("a repetition");
    starts.push_back(new_node());
    to_do_.emplace_back(at->second, part);
  }
  return at->second;
}

void AutomatonDraft::compile_rules() {
  while (!to_do_.empty()) {
    const auto [rule, body] = to_do_.back();
    to_do_.pop_back();
    nodes[compile(body, starts[rule], 0)].accepting = true;
  }
}

AutomatonDraft::Fragment AutomatonDraft::compile(ExprId id, State from, int depth) {
  if (depth > kMaxExprDepth) {
    fail(Errc::LimitExceeded, "grammar: expressions nested deeper than {}", kMaxExprDepth);
  }
  const GrammarExpr& expr = grammar_.expr(id);
  switch (expr.kind) {
    case Kind::Literal:
      return literal(expr.literal, from);
    case Kind::Set:
      return set(expr.set, from);
    case Kind::Sequence:
      for (const ExprId part : expr.parts) from = compile(part, from, depth + 1);
      return from;
    case Kind::Choice: {
      const State end = new_node();
      for (const ExprId part : expr.parts) {
        const State begin = new_node();
        nodes[from].epsilon.push_back(begin);
        nodes[compile(part, begin, depth + 1)].epsilon.push_back(end);
      }
      return end;
    }
    case Kind::Repeat:
      return repeat(expr, from, depth);
    case Kind::Rule:
      break;
  }
  return call(rule_index(expr.rule), empty_[expr.rule] != 0, from);
}

AutomatonDraft::Fragment AutomatonDraft::literal(const std::string& text, State from) {
  std::vector<State> chain = {from};
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    const State next = new_node();
    nodes[chain.back()].bytes.push_back({byte, byte, next});
    chain.push_back(next);
  }
  mark(text, chain);
  return chain.back();
}

// Adds the way over a marker token wherever the text has its text.
void AutomatonDraft::mark(const std::string& text, std::span<const State> chain) {
  for (const GrammarMarker& marker : markers_) {
    if (marker.text.empty()) continue;
    for (std::size_t at = text.find(marker.text); at != std::string::npos;
         at = text.find(marker.text, at + 1)) {
      auto used = std::find(markers_used.begin(), markers_used.end(), marker.id);
      if (used == markers_used.end()) {
        if (markers_used.size() == kMaxMarkers) {
          fail(Errc::LimitExceeded, "grammar: more than {} control tokens in literals",
               kMaxMarkers);
        }
        used = markers_used.insert(used, marker.id);
      }
      const auto number = static_cast<std::uint8_t>(used - markers_used.begin());
      const State between = new_node();
      nodes[chain[at]].bytes.push_back(
          {ByteAutomaton::kMarkerByte, ByteAutomaton::kMarkerByte, between});
      nodes[between].bytes.push_back({number, number, chain[at + marker.text.size()]});
    }
  }
}

// Encodings that end the same way share their last states: fewer states at run time.
AutomatonDraft::Fragment AutomatonDraft::set(const CodePoints& characters, State from) {
  const State end = new_node();
  std::map<std::vector<ByteSpan>, State> before = {{{}, end}};
  for (const std::vector<ByteSpan>& sequence : utf8_sequences(characters)) {
    State target = end;
    for (std::size_t i = sequence.size(); i-- > 1;) {
      const std::vector<ByteSpan> rest(sequence.begin() + static_cast<std::ptrdiff_t>(i),
                                       sequence.end());
      auto [at, is_new] = before.try_emplace(rest, 0);
      if (is_new) {
        at->second = new_node();
        nodes[at->second].bytes.push_back({sequence[i].first, sequence[i].last, target});
      }
      target = at->second;
    }
    nodes[from].bytes.push_back({sequence[0].first, sequence[0].last, target});
  }
  return end;
}

AutomatonDraft::Fragment AutomatonDraft::repeat(const GrammarExpr& expr, State from, int depth) {
  const ExprId part = expr.parts[0];
  const bool unbounded = expr.max == Grammar::kUnbounded;
  const std::uint32_t copies = unbounded ? expr.min + 1 : expr.max;
  const bool as_rule = copies > kCopiesWithoutRule && worth_a_rule(part);
  const auto once = [&](State at) {
    if (!as_rule) return compile(part, at, depth + 1);
    return call(part_index(part), may_be_empty(part, depth + 1), at);
  };
  for (std::uint32_t i = 0; i < expr.min; ++i) from = once(from);
  const State end = new_node();
  if (unbounded) {
    const State loop = new_node();
    nodes[from].epsilon.push_back(loop);
    nodes[once(loop)].epsilon.push_back(loop);
    nodes[loop].epsilon.push_back(end);
    return end;
  }
  for (std::uint32_t i = expr.min; i < expr.max; ++i) {
    nodes[from].epsilon.push_back(end);
    from = once(from);
  }
  nodes[from].epsilon.push_back(end);
  return end;
}

AutomatonDraft::Fragment AutomatonDraft::call(RuleId rule, bool may_be_empty, State from) {
  const State end = new_node();
  nodes[from].calls.push_back({rule, end});
  if (may_be_empty) nodes[from].epsilon.push_back(end);
  return end;
}

bool AutomatonDraft::worth_a_rule(ExprId part) const {
  const GrammarExpr& expr = grammar_.expr(part);
  if (expr.kind == Kind::Rule) return false;
  if (expr.kind == Kind::Literal) return expr.literal.size() > 2;
  if (expr.kind == Kind::Set) return !expr.set.empty() && expr.set.ranges().back().last > 0x7F;
  return true;
}

// A rule is looked at again whenever a rule it uses turns out to match the empty text.
void AutomatonDraft::find_empty_rules() {
  empty_.assign(grammar_.n_rules(), 0);
  std::vector<std::vector<RuleId>> users(grammar_.n_rules());
  std::vector<RuleId> again;
  for (RuleId rule = 0; rule < grammar_.n_rules(); ++rule) {
    again.push_back(rule);
    std::vector<ExprId> inside = {grammar_.body(rule)};
    while (!inside.empty()) {
      const GrammarExpr& expr = grammar_.expr(inside.back());
      inside.pop_back();
      if (expr.kind == Kind::Rule) users[expr.rule].push_back(rule);
      inside.insert(inside.end(), expr.parts.begin(), expr.parts.end());
    }
  }
  while (!again.empty()) {
    const RuleId rule = again.back();
    again.pop_back();
    if (empty_[rule] != 0 || !may_be_empty(grammar_.body(rule), 0)) continue;
    empty_[rule] = 1;
    again.insert(again.end(), users[rule].begin(), users[rule].end());
  }
}

bool AutomatonDraft::may_be_empty(ExprId id, int depth) const {
  if (depth > kMaxExprDepth) {
    fail(Errc::LimitExceeded, "grammar: expressions nested deeper than {}", kMaxExprDepth);
  }
  const GrammarExpr& expr = grammar_.expr(id);
  const auto part_may = [&](ExprId part) { return may_be_empty(part, depth + 1); };
  switch (expr.kind) {
    case Kind::Literal:
      return expr.literal.empty();
    case Kind::Set:
      return false;
    case Kind::Sequence:
      return std::all_of(expr.parts.begin(), expr.parts.end(), part_may);
    case Kind::Choice:
      return std::any_of(expr.parts.begin(), expr.parts.end(), part_may);
    case Kind::Repeat:
      return expr.min == 0 || part_may(expr.parts[0]);
    case Kind::Rule:
      break;
  }
  return empty_[expr.rule] != 0;
}

}  // namespace moeflux
