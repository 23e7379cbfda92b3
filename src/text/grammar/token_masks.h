// Which tokens may come next under a grammar: the automaton of the grammar walked over the tree of
// the vocabulary, once per state, and remembered.
//
// Shared by all answers with the same grammar and vocabulary, from any thread (a mutex inside).
// Each answer has a Cursor. Memory is bounded: what was learned about the grammar is forgotten when
// it grows too large, and cursors find their place again from the bytes they passed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/grammar/lazy_automaton.h"
#include "text/grammar/token_trie.h"

namespace moeflux {

// Finds the states in which all plain characters lead to the same next state, as inside of a JSON
// string: there the plain tokens that may follow are known from their lengths, without a walk.
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

struct TokenMaskLimits {
  std::size_t automaton_bytes = 16u << 20;
  std::size_t n_masks = 128;  // of n_ids / 8 bytes each
};

class TokenMasks {
 public:
  class Cursor {
   public:
    bool may_end() const { return may_end_; }
    bool must_end() const { return must_end_; }

   private:
    friend class TokenMasks;
    std::uint64_t generation_ = 0;
    LazyAutomaton::StateId state_ = 0;
    std::string passed_;  // the bytes so far, markers as they stand in the automaton
    bool may_end_ = false, must_end_ = false;
  };

  // Throws Unsupported if the vocabulary lacks the token of a single byte that the grammar needs:
  // without it an answer could come to a dead end.
  TokenMasks(std::shared_ptr<const ByteAutomaton> automaton, std::shared_ptr<const TokenTrie> trie,
             const TokenMaskLimits& limits = {});

  Cursor start();
  // False, and nothing changed, if the token must not come here.
  bool advance(Cursor& cursor, TokenId token);
  bool advance_bytes(Cursor& cursor, std::string_view bytes);
  // 1 for tokens that may come next, 0 for others; [n_ids].
  void fill(Cursor& cursor, std::span<std::uint8_t> allowed);

  std::size_t n_ids() const { return trie_->n_ids(); }
  const std::vector<std::string>& notes() const { return compiled_->notes; }
  std::size_t bytes();  // of memory, the tree of the vocabulary not counted
  void forget();        // what was learned; it is learned again where it is needed
  struct Counts {
    std::uint64_t masks_computed = 0, masks_reused = 0, times_cleared = 0;
    std::size_t n_states = 0, automaton_bytes = 0;
  };
  Counts counts();

 private:
  using Bits = std::vector<std::uint8_t>;
  void find_place(Cursor& cursor);
  void note_ends(Cursor& cursor);
  void keep_within_limits();
  void clear();
  void compute(LazyAutomaton::StateId state, std::span<std::uint8_t> allowed);
  void walk(const TokenTrie::Tree& tree, LazyAutomaton::StateId state,
            std::span<std::uint8_t> allowed);
  std::string symbols(TokenId token) const;

  std::shared_ptr<const ByteAutomaton> compiled_;
  std::shared_ptr<const TokenTrie> trie_;
  TokenMaskLimits limits_;

  std::mutex mutex_;
  LazyAutomaton automaton_;
  PlainSteps plain_steps_;
  std::uint64_t generation_ = 0;
  std::unordered_map<LazyAutomaton::StateId, Bits> masks_;
  std::deque<LazyAutomaton::StateId> mask_order_;  // oldest first
  std::vector<LazyAutomaton::StateId> path_;       // of a walk, by depth
  Counts counts_;
};

}  // namespace moeflux
