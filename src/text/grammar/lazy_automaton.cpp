#include "text/grammar/lazy_automaton.h"

#include <algorithm>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxConfigs = 20'000;
constexpr std::uint32_t kMaxDepth = ByteAutomaton::kMaxDepth;

void sort_unique(std::vector<NumberPair>& pairs) {
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
}

bool fits(std::uint32_t depth, std::uint32_t need) {
  return need <= kMaxDepth && depth + need <= kMaxDepth;
}

}  // namespace

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
    if (configs_.size() > kMaxConfigs) {
      fail(Errc::LimitExceeded,
           "grammar: more than {} readings of one text; make it less ambiguous", kMaxConfigs);
    }
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
    if (configs_.size() > kMaxConfigs) {
      fail(Errc::LimitExceeded,
           "grammar: more than {} readings of one text; make it less ambiguous", kMaxConfigs);
    }
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
