#include "text/grammar/lazy_automaton.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace moeflux {
namespace {

// ---- sets of pairs

constexpr InternedPairs::Id kFree = std::numeric_limits<InternedPairs::Id>::max();
constexpr std::size_t kLinearSearch = 16;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

std::uint64_t joined(NumberPair pair) {
  return (static_cast<std::uint64_t>(pair.first) << 32) | pair.second;
}

// ---- the automaton

constexpr std::size_t kMaxConfigs = 20'000;
constexpr std::uint32_t kMaxDepth = ByteAutomaton::kMaxDepth;

void sort_unique(std::vector<NumberPair>& pairs) {
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
}

void check_size(const PairSet& configs) {
  if (configs.size() <= kMaxConfigs) return;
  fail(Errc::LimitExceeded, "grammar: more than {} readings of one text; make it less ambiguous",
       kMaxConfigs);
}

bool fits(std::uint32_t depth, std::uint32_t need) {
  return need <= kMaxDepth && depth + need <= kMaxDepth;
}

}  // namespace

InternedPairs::Id InternedPairs::intern(std::span<const NumberPair> pairs, std::uint32_t tag) {
  std::uint64_t hash = mix(tag, pairs.size());
  for (const NumberPair pair : pairs) hash = mix(hash, joined(pair));
  if (entries_.size() * 2 >= slots_.size()) grow();
  std::size_t slot = hash & (slots_.size() - 1);
  for (; slots_[slot] != kFree; slot = (slot + 1) & (slots_.size() - 1)) {
    const Entry& entry = entries_[slots_[slot]];
    if (entry.hash != hash || entry.tag != tag || entry.size != pairs.size()) continue;
    if (std::equal(pairs.begin(), pairs.end(),
                   pool_.begin() + static_cast<std::ptrdiff_t>(entry.begin))) {
      return slots_[slot];
    }
  }
  const Id id = static_cast<Id>(entries_.size());
  entries_.push_back({pool_.size(), static_cast<std::uint32_t>(pairs.size()), tag, hash});
  pool_.insert(pool_.end(), pairs.begin(), pairs.end());
  slots_[slot] = id;
  return id;
}

void InternedPairs::grow() {
  slots_.assign(std::max<std::size_t>(64, slots_.size() * 2), kFree);
  for (Id id = 0; id < entries_.size(); ++id) {
    std::size_t slot = entries_[id].hash & (slots_.size() - 1);
    while (slots_[slot] != kFree) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = id;
  }
}

std::size_t InternedPairs::bytes() const {
  return pool_.capacity() * sizeof(NumberPair) + entries_.capacity() * sizeof(Entry) +
         slots_.capacity() * sizeof(Id);
}

void InternedPairs::clear() {
  *this = InternedPairs();  // an empty list assigned to a vector would leave it its memory
}

bool PairSet::add(NumberPair pair) {
  if (items_.size() < kLinearSearch) {
    if (std::find(items_.begin(), items_.end(), pair) != items_.end()) return false;
    items_.push_back(pair);
    return true;
  }
  if (items_.size() * 2 >= slots_.size() || items_.size() == kLinearSearch) grow();
  std::size_t slot = mix(0, joined(pair)) & (slots_.size() - 1);
  for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
    if (items_[slots_[slot] - 1] == pair) return false;
  }
  items_.push_back(pair);
  slots_[slot] = static_cast<std::uint32_t>(items_.size());
  return true;
}

void PairSet::grow() {
  std::size_t size = 64;
  while (size < items_.size() * 4) size *= 2;
  slots_.assign(size, 0);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    std::size_t slot = mix(0, joined(items_[i])) & (size - 1);
    while (slots_[slot] != 0) slot = (slot + 1) & (size - 1);
    slots_[slot] = static_cast<std::uint32_t>(i + 1);
  }
}

void PairSet::clear() {
  items_.clear();
  if (slots_.size() > 64) slots_.clear();
}

LazyAutomaton::LazyAutomaton(std::shared_ptr<const ByteAutomaton> automaton)
    : automaton_(std::move(automaton)), n_classes_(automaton_->class_byte.size()) {
  begin();
}

void LazyAutomaton::begin() {
  const NumberPair done = {kDone, 0};
  const Node bottom = nodes_.intern(std::span(&done, 1), 0);
  const StateId dead = states_.intern({}, 0);
  MOEFLUX_ASSERT(bottom == 0 && dead == kDead);
  table_.assign(n_classes_, kDead);
  configs_.clear();
  calls_.clear();
  const NumberPair root = {automaton_->start[0], bottom};
  configs_.add(root);
  note_calls(root);
  call_rules();
  start_ = intern(automaton_->root_may_be_empty);
}

void LazyAutomaton::clear() {
  nodes_.clear();
  states_.clear();
  table_ = std::vector<StateId>();
  begin();
}

std::size_t LazyAutomaton::bytes() const {
  return nodes_.bytes() + states_.bytes() + table_.capacity() * sizeof(StateId);
}

LazyAutomaton::StateId LazyAutomaton::walk(StateId state, std::string_view bytes) {
  for (const char c : bytes) state = step(state, static_cast<std::uint8_t>(c));
  return state;
}

bool LazyAutomaton::can_go_on(StateId state) {
  if (states_.pairs(state).empty()) return false;
  const auto& bytes = automaton_->class_byte;
  return std::any_of(bytes.begin(), bytes.end(),
                     [&](std::uint8_t byte) { return step(state, byte) != kDead; });
}

LazyAutomaton::StateId LazyAutomaton::find_step(StateId state, std::uint8_t byte_class) {
  const std::uint8_t byte = automaton_->class_byte[byte_class];
  configs_.clear();
  for (const auto& [from, node] : states_.pairs(state)) {
    for (const ByteAutomaton::ByteEdge& edge : automaton_->bytes_of(from)) {
      if (byte < edge.first || byte > edge.last) continue;
      if (fits(nodes_.tag(node), automaton_->need[edge.target])) configs_.add({edge.target, node});
    }
  }
  const StateId next = close();
  table_[state * n_classes_ + byte_class] = next;
  return next;
}

// From the positions right after a byte to all positions that can take the next one. Returns come
// first and calls after them: a call consumes at least one byte, so none returns here.
LazyAutomaton::StateId LazyAutomaton::close() {
  const bool may_end = return_from_rules();
  calls_.clear();
  for (std::size_t i = 0; i < configs_.size(); ++i) note_calls(configs_[i]);
  call_rules();
  return intern(may_end);
}

bool LazyAutomaton::return_from_rules() {
  bool may_end = false;
  for (std::size_t i = 0; i < configs_.size(); ++i) {
    const auto [state, node] = configs_[i];
    if (automaton_->accepting[state] == 0) continue;
    for (const NumberPair link : nodes_.pairs(node)) {
      if (link.first == kDone) {
        may_end = true;
      } else {
        configs_.add(link);
      }
    }
    check_size(configs_);
  }
  return may_end;
}

// What would return only to return again is not put on the stack: recursion at the end of a rule
// costs no depth.
void LazyAutomaton::note_calls(NumberPair config) {
  const auto [state, node] = config;
  const std::uint32_t depth = nodes_.tag(node);
  for (const auto& [rule, target] : automaton_->calls_of(state)) {
    const bool tail = automaton_->tail[target] != 0;
    const std::uint32_t inner = depth + (tail ? 0 : 1);
    if (!fits(inner, automaton_->call_need[rule])) continue;
    if (tail) {
      std::vector<NumberPair>& links = calls_[{automaton_->rank[rule], inner}];
      const auto own = nodes_.pairs(node);
      links.insert(links.end(), own.begin(), own.end());
    } else if (fits(depth, automaton_->need[target])) {
      calls_[{automaton_->rank[rule], inner}].push_back({target, node});
    }
  }
}

void LazyAutomaton::call_rules() {
  // A rule's callers have a lower rank: when its turn comes, all of them are known.
  while (!calls_.empty()) {
    auto call = calls_.extract(calls_.begin());
    std::vector<NumberPair>& links = call.mapped();
    sort_unique(links);
    const Node node = nodes_.intern(links, call.key().second);
    const NumberPair config = {automaton_->start_by_rank[call.key().first], node};
    if (configs_.add(config)) note_calls(config);
    check_size(configs_);
  }
}

LazyAutomaton::StateId LazyAutomaton::intern(bool may_end) {
  sorted_.clear();
  for (std::size_t i = 0; i < configs_.size(); ++i) {
    if (!automaton_->bytes_of(configs_[i].first).empty()) sorted_.push_back(configs_[i]);
  }
  std::sort(sorted_.begin(), sorted_.end());
  const StateId id = states_.intern(sorted_, may_end ? 1 : 0);
  if (states_.size() * n_classes_ > table_.size()) {
    table_.resize(states_.size() * n_classes_, kUnknown);
  }
  return id;
}

}  // namespace moeflux
