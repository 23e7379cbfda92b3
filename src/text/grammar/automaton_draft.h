// The first step of compile_grammar(): automata with epsilon edges (Thompson's
// construction), for the rules the root can reach.
#pragma once

#include <map>
#include <vector>

#include "text/grammar/byte_automaton.h"

namespace moeflux {

class AutomatonDraft {
 public:
  using State = ByteAutomaton::State;

  struct Node {
    std::vector<ByteAutomaton::ByteEdge> bytes = {};
    std::vector<ByteAutomaton::CallEdge> calls = {};
    std::vector<State> epsilon = {};  // edges that consume nothing
    bool accepting = false;
  };

  AutomatonDraft(const Grammar& grammar, std::span<const GrammarMarker> markers,
                 std::size_t max_states);

  std::vector<Node> nodes;
  std::vector<State> starts;       // by rule of the automaton
  std::vector<std::string> names;  // likewise
  std::vector<TokenId> markers_used;
  bool root_may_be_empty;

 private:
  using Fragment = State;  // where an expression ends that began at a given state

  State new_node();
  RuleId rule_index(RuleId grammar_rule);
  RuleId part_index(ExprId part);
  void compile_rules();
  Fragment compile(ExprId id, State from, int depth);
  Fragment literal(const std::string& text, State from);
  Fragment set(const CodePoints& characters, State from);
  Fragment repeat(const GrammarExpr& expr, State from, int depth);
  Fragment call(RuleId rule, bool may_be_empty, State from);
  void mark(const std::string& text, std::span<const State> chain);
  void find_empty_rules();
  bool may_be_empty(ExprId id, int depth) const;
  bool worth_a_rule(ExprId part) const;

  const Grammar& grammar_;
  std::span<const GrammarMarker> markers_;
  std::size_t max_states_;
  std::vector<std::uint8_t> empty_;               // by rule of the grammar
  std::map<RuleId, RuleId> index_;                // rule of the grammar -> of the automaton
  std::map<ExprId, RuleId> part_index_;           // repeated part -> rule of the automaton
  std::vector<std::pair<RuleId, ExprId>> to_do_;  // rules whose body is not compiled yet
};

}  // namespace moeflux
