// A grammar compiled to automata over bytes: one automaton per rule, whose edges either take a byte
// or call another rule and go on when it returns. lazy_automaton.h runs it.
//
// What holds for every compiled grammar:
//   - no left recursion: `rank` sorts callers before the rules they can begin with;
//   - a call consumes at least one byte (where a rule may be empty there is an edge around it);
//   - every state can finish: `need` is how many nested calls that takes at least, so a run that
//     keeps depth + need <= kMaxDepth never comes to a dead end;
//   - UTF-8 only: bytes 0xF8 to 0xFF are no text. 0xFF i stands for the marker token markers[i].
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/token_id.h"
#include "text/grammar/grammar.h"

namespace moeflux {

// A token that stands for a text as one unit ("<tool_call>"): allowed where a literal of the
// grammar has this text, and never elsewhere, even where its bytes would fit.
struct GrammarMarker {
  std::string text;
  TokenId id;
};

inline constexpr std::size_t kMaxGrammarStates = 300'000;

struct ByteAutomaton {
  using State = std::uint32_t;
  static constexpr std::uint32_t kMaxDepth = 200;  // nested calls, tail calls not counted
  static constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint8_t kMarkerByte = 0xFF;

  struct ByteEdge {
    std::uint8_t first, last;
    State target;
    auto operator<=>(const ByteEdge&) const = default;
  };
  struct CallEdge {
    RuleId rule;
    State target;
    auto operator<=>(const CallEdge&) const = default;
  };

  std::span<const ByteEdge> bytes_of(State s) const {
    return std::span(byte_edges).subspan(byte_begin[s], byte_begin[s + 1] - byte_begin[s]);
  }
  std::span<const CallEdge> calls_of(State s) const {
    return std::span(call_edges).subspan(call_begin[s], call_begin[s + 1] - call_begin[s]);
  }
  std::size_t n_states() const { return accepting.size(); }
  std::size_t n_rules() const { return start.size(); }
  std::size_t bytes() const;  // of memory

  // By state.
  std::vector<std::uint32_t> byte_begin, call_begin;  // and the end
  std::vector<std::uint8_t> accepting;                // the rule may return
  std::vector<std::uint8_t> tail;                     // it can do nothing else
  std::vector<std::uint32_t> need;

  // By rule; 0 is the root.
  std::vector<State> start;
  std::vector<std::uint32_t> call_need;  // of a call: without the empty text
  std::vector<std::uint32_t> rank;       // callers before the rules they can begin with
  std::vector<State> start_by_rank;

  std::vector<ByteEdge> byte_edges;
  std::vector<CallEdge> call_edges;
  bool root_may_be_empty = false;

  std::array<std::uint8_t, 256> class_of = {};  // bytes no edge tells apart have one class
  std::vector<std::uint8_t> class_byte;         // a byte of each class
  std::bitset<256> text_bytes;                  // that some edge takes, markers aside
  std::vector<TokenId> markers;
  std::vector<std::string> notes;  // of the grammar: what it does not keep
};

// Throws BadInput (left recursion, nothing matches) or LimitExceeded, naming the rule.
ByteAutomaton compile_grammar(const Grammar& grammar, std::span<const GrammarMarker> markers = {},
                              std::size_t max_states = kMaxGrammarStates);

}  // namespace moeflux
