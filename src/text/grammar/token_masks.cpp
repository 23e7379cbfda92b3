#include "text/grammar/token_masks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "text/grammar/token_trie.h"

namespace moeflux {
namespace {

// ---- plain steps

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

// ---- masks

std::vector<std::uint8_t> pack(std::span<const std::uint8_t> flags) {
  std::vector<std::uint8_t> bits((flags.size() + 7) / 8, 0);
  const std::size_t whole = flags.size() / 8;
  for (std::size_t i = 0; i < whole; ++i) {
    unsigned byte = 0;
    for (std::size_t bit = 0; bit < 8; ++bit) byte |= unsigned{flags[i * 8 + bit]} << bit;
    bits[i] = static_cast<std::uint8_t>(byte);
  }
  for (std::size_t i = whole * 8; i < flags.size(); ++i) {
    bits[whole] = static_cast<std::uint8_t>(bits[whole] | (flags[i] << (i % 8)));
  }
  return bits;
}

// For each byte, its bits as eight bytes.
std::array<std::array<std::uint8_t, 8>, 256> make_spread() {
  std::array<std::array<std::uint8_t, 8>, 256> spread = {};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    for (std::size_t bit = 0; bit < 8; ++bit) {
      spread[byte][bit] = static_cast<std::uint8_t>((byte >> bit) & 1);
    }
  }
  return spread;
}

void unpack(std::span<const std::uint8_t> bits, std::span<std::uint8_t> flags) {
  static const auto spread = make_spread();
  const std::size_t whole = flags.size() / 8;
  for (std::size_t i = 0; i < whole; ++i) std::memcpy(&flags[i * 8], spread[bits[i]].data(), 8);
  for (std::size_t i = whole * 8; i < flags.size(); ++i) flags[i] = spread[bits[whole]][i % 8];
}

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

TokenMasks::TokenMasks(std::shared_ptr<const ByteAutomaton> automaton,
                       std::shared_ptr<const TokenTrie> trie, const TokenMaskLimits& limits)
    : compiled_(std::move(automaton)),
      trie_(std::move(trie)),
      limits_(limits),
      automaton_(compiled_),
      plain_steps_(automaton_),
      path_(trie_->max_depth() + 1) {
  const std::bitset<256> missing = compiled_->text_bytes & ~trie_->single_bytes();
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (missing[byte]) {
      fail(Errc::Unsupported,
           "grammar: the vocabulary has no token for the single byte 0x{:02x}, which the grammar "
           "needs; grammars work with vocabularies that have all bytes",
           byte);
    }
  }
}

TokenMasks::Cursor TokenMasks::start() {
  const std::lock_guard lock(mutex_);
  Cursor cursor;
  cursor.generation_ = generation_;
  cursor.state_ = automaton_.start();
  note_ends(cursor);
  return cursor;
}

bool TokenMasks::advance(Cursor& cursor, TokenId token) {
  const std::string bytes = symbols(token);
  return !bytes.empty() && advance_bytes(cursor, bytes);
}

bool TokenMasks::advance_bytes(Cursor& cursor, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  find_place(cursor);
  const LazyAutomaton::StateId next = automaton_.walk(cursor.state_, bytes);
  if (next == LazyAutomaton::kDead) return false;
  cursor.passed_ += bytes;
  cursor.state_ = next;
  note_ends(cursor);
  return true;
}

void TokenMasks::fill(Cursor& cursor, std::span<std::uint8_t> allowed) {
  MOEFLUX_ASSERT(allowed.size() == n_ids());
  const std::lock_guard lock(mutex_);
  find_place(cursor);
  if (const auto known = masks_.find(cursor.state_); known != masks_.end()) {
    ++counts_.masks_reused;
    unpack(known->second, allowed);
    return;
  }
  ++counts_.masks_computed;
  compute(cursor.state_, allowed);
  if (masks_.size() >= limits_.n_masks) {
    masks_.erase(mask_order_.front());
    mask_order_.pop_front();
  }
  masks_.emplace(cursor.state_, pack(allowed));
  mask_order_.push_back(cursor.state_);
}

std::size_t TokenMasks::bytes() {
  const std::lock_guard lock(mutex_);
  return compiled_->bytes() + automaton_.bytes() + masks_.size() * (n_ids() / 8);
}

TokenMasks::Counts TokenMasks::counts() {
  const std::lock_guard lock(mutex_);
  counts_.n_states = automaton_.n_states();
  counts_.automaton_bytes = automaton_.bytes();
  return counts_;
}

// The cursor's state is valid after this, also when everything was forgotten since.
void TokenMasks::find_place(Cursor& cursor) {
  keep_within_limits();
  if (cursor.generation_ == generation_) return;
  cursor.state_ = automaton_.walk(automaton_.start(), cursor.passed_);
  cursor.generation_ = generation_;
}

void TokenMasks::forget() {
  const std::lock_guard lock(mutex_);
  clear();
}

void TokenMasks::keep_within_limits() {
  if (automaton_.bytes() > limits_.automaton_bytes) clear();
}

void TokenMasks::clear() {
  automaton_.clear();
  plain_steps_.clear();
  masks_.clear();
  mask_order_.clear();
  ++generation_;
  ++counts_.times_cleared;
}

void TokenMasks::note_ends(Cursor& cursor) {
  cursor.may_end_ = automaton_.may_end(cursor.state_);
  cursor.must_end_ = cursor.may_end_ && !automaton_.can_go_on(cursor.state_);
}

void TokenMasks::compute(LazyAutomaton::StateId state, std::span<std::uint8_t> allowed) {
  if (const auto n_plain = plain_steps_.count(state)) {
    unpack(trie_->plain_up_to(*n_plain), allowed);
  } else {
    std::fill(allowed.begin(), allowed.end(), std::uint8_t{0});
    walk(trie_->plain(), state, allowed);
  }
  walk(trie_->other(), state, allowed);
  for (const TokenId id : compiled_->markers) {
    const bool fits = automaton_.walk(state, symbols(id)) != LazyAutomaton::kDead;
    allowed[static_cast<std::size_t>(id)] = fits ? 1 : 0;
  }
}

void TokenMasks::walk(const TokenTrie::Tree& tree, LazyAutomaton::StateId state,
                      std::span<std::uint8_t> allowed) {
  const auto nodes = tree.nodes();
  path_[0] = state;
  for (std::size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const LazyAutomaton::StateId next = automaton_.step(path_[node.depth - 1u], node.byte);
    if (next == LazyAutomaton::kDead) {
      i = node.end;
      continue;
    }
    path_[node.depth] = next;
    for (const TokenId id : tree.tokens_at(i)) allowed[static_cast<std::size_t>(id)] = 1;
    ++i;
  }
}

// What the automaton reads for a token; "" for one it can never read.
std::string TokenMasks::symbols(TokenId token) const {
  const auto& markers = compiled_->markers;
  const auto marker = std::find(markers.begin(), markers.end(), token);
  if (marker == markers.end()) return std::string(trie_->bytes(token));
  return {static_cast<char>(ByteAutomaton::kMarkerByte),
          static_cast<char>(marker - markers.begin())};
}

}  // namespace moeflux
