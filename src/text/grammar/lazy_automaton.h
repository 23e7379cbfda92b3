// Runs a compiled grammar over bytes.
//
// A state is everything the text so far can mean: a set of (position in a rule, stack of callers).
// Stacks share their parts, and calls of one rule at one place share one frame, so ambiguity costs
// little. States are found as they are reached and remembered: from then on a step is one load.
// The text so far is a prefix of a text of the grammar if and only if the state is not kDead.
//
// Not thread-safe. Memory grows with the states reached; clear() gives it back.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar/byte_automaton.h"

namespace moeflux {

// Sets of pairs of numbers, each stored once and named by a small id: equal sets have equal ids.
// The stacks and the states of a running grammar are such sets.
struct NumberPair {
  std::uint32_t first, second;
  auto operator<=>(const NumberPair&) const = default;
};

class InternedPairs {
 public:
  using Id = std::uint32_t;

  // `pairs` are sorted and unique. `tag` is part of the identity.
  Id intern(std::span<const NumberPair> pairs, std::uint32_t tag);

  std::span<const NumberPair> pairs(Id id) const {
    return std::span(pool_).subspan(entries_[id].begin, entries_[id].size);
  }
  std::uint32_t tag(Id id) const { return entries_[id].tag; }
  std::size_t size() const { return entries_.size(); }
  std::size_t bytes() const;
  void clear();

 private:
  struct Entry {
    std::size_t begin;
    std::uint32_t size, tag;
    std::uint64_t hash;
  };
  void grow();

  std::vector<NumberPair> pool_;
  std::vector<Entry> entries_;
  std::vector<Id> slots_;  // open addressing; kFree
};

// A set being built: each pair once, in order of arrival.
class PairSet {
 public:
  bool add(NumberPair pair);  // false when it is there already
  void clear();
  std::size_t size() const { return items_.size(); }
  NumberPair operator[](std::size_t i) const { return items_[i]; }

 private:
  void grow();
  std::vector<NumberPair> items_;
  std::vector<std::uint32_t> slots_;  // item + 1; used once there are many items
};

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
