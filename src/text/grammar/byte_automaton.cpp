#include "text/grammar/byte_automaton.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "base/error.h"
#include "text/grammar/automaton_draft.h"

namespace moeflux {
namespace {

using State = ByteAutomaton::State;
using ByteEdge = ByteAutomaton::ByteEdge;
using CallEdge = ByteAutomaton::CallEdge;
constexpr std::uint32_t kNever = ByteAutomaton::kNever;
constexpr std::size_t kMaxEdges = 4'000'000;

template <class T>
void sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

// Gives every state the edges of all states it reaches by epsilon edges, and keeps the states that
// another edge leads to.
class EpsilonRemoval {
 public:
  explicit EpsilonRemoval(const AutomatonDraft& draft)
      : draft_(draft), number_(draft.nodes.size(), kNever), seen_(draft.nodes.size(), kNever) {}

  ByteAutomaton run() {
    for (const State start : draft_.starts) out_.start.push_back(number(start));
    for (std::size_t done = 0; done < kept_.size(); ++done) close(kept_[done]);
    out_.byte_begin.push_back(static_cast<std::uint32_t>(out_.byte_edges.size()));
    out_.call_begin.push_back(static_cast<std::uint32_t>(out_.call_edges.size()));
    return std::move(out_);
  }

 private:
  State number(State draft_state) {
    if (number_[draft_state] == kNever) {
      number_[draft_state] = static_cast<State>(kept_.size());
      kept_.push_back(draft_state);
    }
    return number_[draft_state];
  }

  void close(State state) {
    std::vector<ByteEdge> bytes;
    std::vector<CallEdge> calls;
    bool accepting = false;
    std::vector<State> to_do = {state};
    seen_[state] = state;
    while (!to_do.empty()) {
      const AutomatonDraft::Node& node = draft_.nodes[to_do.back()];
      to_do.pop_back();
      accepting = accepting || node.accepting;
      bytes.insert(bytes.end(), node.bytes.begin(), node.bytes.end());
      calls.insert(calls.end(), node.calls.begin(), node.calls.end());
      for (const State next : node.epsilon) {
        if (std::exchange(seen_[next], state) != state) to_do.push_back(next);
      }
    }
    for (ByteEdge& edge : bytes) edge.target = number(edge.target);
    for (CallEdge& edge : calls) edge.target = number(edge.target);
    sort_unique(bytes);
    sort_unique(calls);
    append(bytes, calls, accepting);
  }

  void append(const std::vector<ByteEdge>& bytes, const std::vector<CallEdge>& calls,
              bool accepting) {
    if (out_.byte_edges.size() + bytes.size() + out_.call_edges.size() + calls.size() > kMaxEdges) {
      fail(Errc::LimitExceeded,
           "grammar: more than {} edges; use smaller counts or fewer nested repetitions",
           kMaxEdges);
    }
    out_.byte_begin.push_back(static_cast<std::uint32_t>(out_.byte_edges.size()));
    out_.call_begin.push_back(static_cast<std::uint32_t>(out_.call_edges.size()));
    out_.byte_edges.insert(out_.byte_edges.end(), bytes.begin(), bytes.end());
    out_.call_edges.insert(out_.call_edges.end(), calls.begin(), calls.end());
    out_.accepting.push_back(accepting ? 1 : 0);
    out_.tail.push_back(accepting && bytes.empty() && calls.empty() ? 1 : 0);
  }

  const AutomatonDraft& draft_;
  ByteAutomaton out_;
  std::vector<State> number_;  // of the draft -> of the automaton
  std::vector<State> seen_;    // by which closure
  std::vector<State> kept_;    // of the automaton -> of the draft
};

// Sorts rules so that one comes before those it can begin with; a cycle is left recursion.
void rank_rules(ByteAutomaton& a, const std::vector<std::string>& names) {
  enum : std::uint8_t { New, Open, Done };
  std::vector<std::uint8_t> mark(a.n_rules(), New);
  a.rank.assign(a.n_rules(), 0);
  auto next_rank = static_cast<std::uint32_t>(a.n_rules());
  struct Visit {
    RuleId rule;
    std::size_t next = 0;
  };
  for (RuleId root = 0; root < a.n_rules(); ++root) {
    if (mark[root] != New) continue;
    std::vector<Visit> path = {{root}};
    mark[root] = Open;
    while (!path.empty()) {
      Visit& at = path.back();
      const auto calls = a.calls_of(a.start[at.rule]);
      if (at.next == calls.size()) {
        mark[at.rule] = Done;
        a.rank[at.rule] = --next_rank;
        path.pop_back();
        continue;
      }
      const RuleId callee = calls[at.next++].rule;
      if (mark[callee] == Open) {
        fail(Errc::BadInput,
             "grammar: rule \"{}\" can begin with itself (left recursion); write it so that "
             "something comes before the recursion",
             names[callee]);
      }
      if (mark[callee] == New) {
        mark[callee] = Open;
        path.push_back({callee});
      }
    }
  }
  a.start_by_rank.resize(a.n_rules());
  for (RuleId rule = 0; rule < a.n_rules(); ++rule) a.start_by_rank[a.rank[rule]] = a.start[rule];
}

// The least number of nested calls with which each state can finish, smallest first (Dijkstra's
// order works because no edge makes the number smaller).
class NeedSearch {
 public:
  explicit NeedSearch(ByteAutomaton& a) : a_(a) {}

  void run() {
    a_.need.assign(a_.n_states(), kNever);
    a_.call_need.assign(a_.n_rules(), kNever);
    index_edges();
    for (State s = 0; s < a_.n_states(); ++s) {
      if (a_.accepting[s] != 0) queue_.push({0, s});
    }
    while (!queue_.empty()) {
      const auto [value, item] = queue_.top();
      queue_.pop();
      if (item < a_.n_states()) {
        if (a_.need[item] == kNever) settle_state(static_cast<State>(item), value);
      } else if (a_.call_need[item - a_.n_states()] == kNever) {
        settle_rule(static_cast<RuleId>(item - a_.n_states()), value);
      }
    }
  }

 private:
  struct Call {
    State from;
    CallEdge edge;
  };

  void index_edges() {
    into_.resize(a_.n_states());
    calls_to_target_.resize(a_.n_states());
    calls_of_rule_.resize(a_.n_rules());
    rule_starting_.assign(a_.n_states(), kNever);
    for (RuleId rule = 0; rule < a_.n_rules(); ++rule) rule_starting_[a_.start[rule]] = rule;
    for (State s = 0; s < a_.n_states(); ++s) {
      for (const ByteEdge& edge : a_.bytes_of(s)) into_[edge.target].push_back(s);
      for (const CallEdge& edge : a_.calls_of(s)) {
        calls_to_target_[edge.target].push_back({s, edge});
        calls_of_rule_[edge.rule].push_back({s, edge});
      }
    }
  }

  // Some edge of `from` can be finished with `value`.
  void offer(State from, std::uint32_t value) {
    if (value > ByteAutomaton::kMaxDepth) return;
    queue_.push({value, from});
    if (rule_starting_[from] != kNever) queue_.push({value, a_.n_states() + rule_starting_[from]});
  }

  void offer(const Call& call) {
    const std::uint32_t target = a_.need[call.edge.target], rule = a_.call_need[call.edge.rule];
    if (target == kNever || rule == kNever) return;
    offer(call.from, std::max(target, rule + (a_.tail[call.edge.target] != 0 ? 0 : 1)));
  }

  void settle_state(State state, std::uint32_t value) {
    a_.need[state] = value;
    for (const State from : into_[state]) offer(from, value);
    for (const Call& call : calls_to_target_[state]) offer(call);
  }

  void settle_rule(RuleId rule, std::uint32_t value) {
    a_.call_need[rule] = value;
    for (const Call& call : calls_of_rule_[rule]) offer(call);
  }

  using Item = std::pair<std::uint32_t, std::size_t>;  // value; a state, or n_states + a rule
  ByteAutomaton& a_;
  std::priority_queue<Item, std::vector<Item>, std::greater<>> queue_;
  std::vector<std::vector<State>> into_;
  std::vector<std::vector<Call>> calls_to_target_, calls_of_rule_;
  std::vector<std::uint32_t> rule_starting_;
};

void find_byte_classes(ByteAutomaton& a) {
  std::bitset<257> cut;
  cut[0] = true;
  std::vector<std::uint8_t> after_marker(a.n_states(), 0);
  for (const ByteEdge& edge : a.byte_edges) {
    cut[edge.first] = cut[edge.last + 1u] = true;
    if (edge.first == ByteAutomaton::kMarkerByte) after_marker[edge.target] = 1;
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (cut[byte]) a.class_byte.push_back(static_cast<std::uint8_t>(byte));
    a.class_of[byte] = static_cast<std::uint8_t>(a.class_byte.size() - 1);
  }
  for (State s = 0; s < a.n_states(); ++s) {
    if (after_marker[s] != 0 || a.need[s] == kNever) continue;
    for (const ByteEdge& edge : a.bytes_of(s)) {
      if (edge.first == ByteAutomaton::kMarkerByte || a.need[edge.target] == kNever) continue;
      for (std::size_t byte = edge.first; byte <= edge.last; ++byte) a.text_bytes.set(byte);
    }
  }
}

}  // namespace

ByteAutomaton compile_grammar(const Grammar& grammar, std::span<const GrammarMarker> markers,
                              std::size_t max_states) {
  const AutomatonDraft draft(grammar, markers, max_states);
  ByteAutomaton automaton = EpsilonRemoval(draft).run();
  automaton.root_may_be_empty = draft.root_may_be_empty;
  automaton.markers = draft.markers_used;
  automaton.notes.assign(grammar.notes().begin(), grammar.notes().end());
  rank_rules(automaton, draft.names);
  NeedSearch(automaton).run();
  if (automaton.call_need[0] == kNever && !automaton.root_may_be_empty) {
    fail(Errc::BadInput,
         "grammar: no text matches \"{}\": some rule never ends, or contradicts itself",
         draft.names[0]);
  }
  find_byte_classes(automaton);
  return automaton;
}

std::size_t ByteAutomaton::bytes() const {
  const auto of = [](const auto& list) { return list.capacity() * sizeof(list[0]); };
  return of(byte_begin) + of(call_begin) + of(accepting) + of(tail) + of(need) + of(start) +
         of(call_need) + of(rank) + of(start_by_rank) + of(byte_edges) + of(call_edges) +
         of(class_byte) + of(markers) + sizeof(*this);
}

}  // namespace moeflux
