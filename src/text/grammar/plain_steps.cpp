#include "text/grammar/plain_steps.h"

#include <algorithm>

#include "text/grammar/token_trie.h"

namespace moeflux {
namespace {

// First bytes of characters beyond ASCII, and what may follow them.
struct Lead {
  std::uint8_t first, last, next_first, next_last;
  int remaining;  // bytes after the first one
};
constexpr Lead kLeads[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 1}, {0xE0, 0xE0, 0xA0, 0xBF, 2}, {0xE1, 0xEC, 0x80, 0xBF, 2},
    {0xED, 0xED, 0x80, 0x9F, 2}, {0xEE, 0xEF, 0x80, 0xBF, 2}, {0xF0, 0xF0, 0x90, 0xBF, 3},
    {0xF1, 0xF3, 0x80, 0xBF, 3}, {0xF4, 0xF4, 0x80, 0x8F, 3},
};

}  // namespace

std::optional<std::size_t> PlainSteps::count(StateId state) {
  std::size_t n = 0;
  for (; n < TokenTrie::kMaxPlain; ++n) {
    state = next(state);
    if (state == kMixed) return std::nullopt;
    if (state == LazyAutomaton::kDead) break;
  }
  return n;
}

PlainSteps::StateId PlainSteps::next(StateId state) {
  if (state >= next_.size()) next_.resize(automaton_.n_states(), kUnknown);
  if (next_[state] == kUnknown) {
    const StateId found = find_next(state);
    next_[state] = found;
  }
  return next_[state];
}

PlainSteps::StateId PlainSteps::find_next(StateId state) {
  const StateId target = automaton_.step(state, ' ');
  for (std::uint8_t byte = 0x21; byte < 0x80; ++byte) {
    if (is_plain(byte) && automaton_.step(state, byte) != target) return kMixed;
  }
  checked_.clear();
  for (const Lead& lead : kLeads) {
    for (unsigned byte = lead.first; byte <= lead.last; ++byte) {
      const StateId inside = automaton_.step(state, static_cast<std::uint8_t>(byte));
      if (target == LazyAutomaton::kDead || inside == LazyAutomaton::kDead) {
        if (inside != target) return kMixed;
      } else if (!all_lead_to(target, inside, lead.next_first, lead.next_last, lead.remaining)) {
        return kMixed;
      }
    }
  }
  return target;
}

bool PlainSteps::all_lead_to(StateId target, StateId state, std::uint8_t first, std::uint8_t last,
                             int remaining) {
  const bool full = first == 0x80 && last == 0xBF;
  const Checked check = {state, remaining};
  if (full && std::find(checked_.begin(), checked_.end(), check) != checked_.end()) return true;
  for (unsigned byte = first; byte <= last; ++byte) {
    const StateId after = automaton_.step(state, static_cast<std::uint8_t>(byte));
    if (after == LazyAutomaton::kDead) return false;
    if (remaining == 1 ? after != target : !all_lead_to(target, after, 0x80, 0xBF, remaining - 1)) {
      return false;
    }
  }
  if (full) checked_.push_back(check);
  return true;
}

}  // namespace moeflux
