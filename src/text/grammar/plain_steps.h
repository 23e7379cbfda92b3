// Finds the states of a grammar in which one plain character is as good as any other, as inside of
// a JSON string: there the plain tokens that may follow are known from their lengths, without a
// walk.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "text/grammar/lazy_automaton.h"

namespace moeflux {

class PlainSteps {
 public:
  explicit PlainSteps(LazyAutomaton& automaton) : automaton_(automaton) {}

  // How many plain characters may follow the state, at most TokenTrie::kMaxPlain; nothing if that
  // depends on which.
  std::optional<std::size_t> count(LazyAutomaton::StateId state);

  void clear() { next_.clear(); }  // with the automaton

 private:
  using StateId = LazyAutomaton::StateId;
  static constexpr StateId kUnknown = ByteAutomaton::kNever, kMixed = kUnknown - 1;

  StateId next(StateId state);
  StateId find_next(StateId state);
  bool all_lead_to(StateId target, StateId state, std::uint8_t first, std::uint8_t last,
                   int remaining);

  LazyAutomaton& automaton_;
  std::vector<StateId> next_;  // by state: where every plain character leads, or kMixed
  struct Checked {
    StateId state;
    int remaining;
    bool operator==(const Checked&) const = default;
  };
  std::vector<Checked> checked_;  // of the state being examined
};

}  // namespace moeflux
