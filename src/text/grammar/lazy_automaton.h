// Runs a compiled grammar over bytes.
//
// A state is everything the text so far can mean: a set of (position in a rule, stack of callers).
// Stacks share their parts, and calls of one rule at one place share one frame, so ambiguity costs
// little. States are found as they are reached and remembered: from then on a step is one load.
// The text so far is the beginning of a text of the grammar if and only if the state is not kDead.
//
// Not thread-safe. Memory grows with the states reached; clear() gives it back.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar/byte_automaton.h"
#include "text/grammar/interned_pairs.h"

namespace moeflux {

class LazyAutomaton {
 public:
  using StateId = std::uint32_t;
  static constexpr StateId kDead = 0;

  explicit LazyAutomaton(std::shared_ptr<const ByteAutomaton> automaton);

  StateId start() const { return start_; }

  // Throws LimitExceeded if the grammar is so ambiguous that a state grows out of bounds.
  StateId step(StateId state, std::uint8_t byte) {
    const std::uint8_t byte_class = automaton_->class_of[byte];
    const StateId next = table_[state * n_classes_ + byte_class];
    return next != kUnknown ? next : find_step(state, byte_class);
  }
  StateId walk(StateId state, std::string_view bytes);

  bool may_end(StateId state) const { return states_.tag(state) != 0; }
  bool can_go_on(StateId state);  // some byte may follow

  const ByteAutomaton& automaton() const { return *automaton_; }
  std::size_t n_states() const { return states_.size(); }
  std::size_t bytes() const;
  void clear();  // all ids but kDead and start() become invalid

 private:
  using State = ByteAutomaton::State;
  using Node = InternedPairs::Id;
  static constexpr StateId kUnknown = ByteAutomaton::kNever;
  static constexpr State kDone = ByteAutomaton::kNever;  // where the root returns to

  void begin();
  StateId find_step(StateId state, std::uint8_t byte_class);
  StateId close();
  bool return_from_rules();
  void call_rules();
  void note_calls(NumberPair config);
  StateId intern(bool may_end);

  std::shared_ptr<const ByteAutomaton> automaton_;
  std::size_t n_classes_;
  InternedPairs nodes_;   // stacks: sets of (state to return to, stack there); the tag is the depth
  InternedPairs states_;  // sets of (state, stack); the tag says that the text may end
  std::vector<StateId> table_;  // [n_states, n_classes]
  StateId start_ = kDead;

  // Of the step being computed.
  PairSet configs_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<NumberPair>> calls_;
  std::vector<NumberPair> sorted_;
};

}  // namespace moeflux
