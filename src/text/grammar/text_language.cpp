#include "text/grammar/text_language.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/utf8.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxMinimized = 500;  // states; merging more takes too long
constexpr int kMaxDerivationDepth = 400;    // of expressions in each other

void mix(std::size_t& hash, std::size_t value) {
  hash ^= value + 0x9E3779B97F4A7C15ull + (hash << 6) + (hash >> 2);
}

}  // namespace

TextLanguages::TextLanguages() {
  add({.kind = Kind::Nothing, .has_empty = false});
  add({.kind = Kind::Empty, .has_empty = true});
  add({.kind = Kind::Not, .has_empty = true, .parts = {nothing()}});
}

LanguageId TextLanguages::add(Expr expr) {
  std::size_t hash = static_cast<std::size_t>(expr.kind);
  for (const CodePoints::Range& range : expr.set.ranges()) mix(hash, range.first * 31 + range.last);
  for (const LanguageId part : expr.parts) mix(hash, part);
  mix(hash, expr.min);
  mix(hash, expr.max);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    const Expr& known = exprs_[at->second];
    if (known.kind == expr.kind && known.parts == expr.parts && known.set == expr.set &&
        known.min == expr.min && known.max == expr.max) {
      return at->second;
    }
  }
  if (exprs_.size() >= kMaxExpressions) {
    fail(Errc::LimitExceeded, "a pattern that takes more than {} steps to work out",
         kMaxExpressions);
  }
  const auto id = static_cast<LanguageId>(exprs_.size());
  exprs_.push_back(std::move(expr));
  by_hash_.emplace(hash, id);
  return id;
}

LanguageId TextLanguages::characters(CodePoints set) {
  if (set.empty()) return nothing();
  return add({.kind = Kind::Set, .has_empty = false, .set = std::move(set)});
}

LanguageId TextLanguages::text(std::string_view utf8) {
  std::vector<char32_t> read;
  for (std::size_t at = 0; at < utf8.size();) {
    const Utf8Step step = decode_utf8(utf8, at);
    read.push_back(step.code_point);
    at += step.length;
  }
  LanguageId out = empty();
  for (std::size_t i = read.size(); i-- > 0;) {
    out = sequence(characters(CodePoints(read[i], read[i])), out);
  }
  return out;
}

LanguageId TextLanguages::sequence(LanguageId first, LanguageId rest) {
  if (first == nothing() || rest == nothing()) return nothing();
  if (first == empty()) return rest;
  if (rest == empty()) return first;
  if (first == anything() && rest == anything()) return first;
  if (exprs_[first].kind == Kind::Sequence) {  // to the right: equal texts have one form
    std::vector<LanguageId> parts;
    for (; exprs_[first].kind == Kind::Sequence; first = exprs_[first].parts[1]) {
      parts.push_back(exprs_[first].parts[0]);
    }
    rest = sequence(first, rest);
    for (std::size_t i = parts.size(); i-- > 0;) rest = sequence(parts[i], rest);
    return rest;
  }
  const bool has_empty_text = exprs_[first].has_empty && exprs_[rest].has_empty;
  return add({.kind = Kind::Sequence, .has_empty = has_empty_text, .parts = {first, rest}});
}

LanguageId TextLanguages::either(std::vector<LanguageId> parts) {
  std::set<LanguageId> all;
  CodePoints set;
  for (const LanguageId part : parts) {
    if (exprs_[part].kind == Kind::Either) {
      for (const LanguageId inner : exprs_[part].parts) {
        if (exprs_[inner].kind == Kind::Set) {
          set.add(exprs_[inner].set);
        } else {
          all.insert(inner);
        }
      }
    } else if (exprs_[part].kind == Kind::Set) {
      set.add(exprs_[part].set);
    } else if (part != nothing()) {
      all.insert(part);
    }
  }
  if (!set.empty()) all.insert(characters(std::move(set)));
  if (all.contains(anything())) return anything();
  if (all.empty()) return nothing();
  if (all.size() == 1) return *all.begin();
  const bool has = std::any_of(all.begin(), all.end(), [&](LanguageId i) { return has_empty(i); });
  return add({.kind = Kind::Either, .has_empty = has, .parts = {all.begin(), all.end()}});
}

LanguageId TextLanguages::both(std::vector<LanguageId> parts) {
  std::set<LanguageId> all;
  for (const LanguageId part : parts) {
    if (exprs_[part].kind == Kind::Both) {
      all.insert(exprs_[part].parts.begin(), exprs_[part].parts.end());
    } else if (part != anything()) {
      all.insert(part);
    }
  }
  if (all.contains(nothing())) return nothing();
  if (all.empty()) return anything();
  if (all.size() == 1) return *all.begin();
  const bool has = std::all_of(all.begin(), all.end(), [&](LanguageId i) { return has_empty(i); });
  if (all.contains(empty())) return has ? empty() : nothing();
  return add({.kind = Kind::Both, .has_empty = has, .parts = {all.begin(), all.end()}});
}

LanguageId TextLanguages::complement(LanguageId of) {
  if (exprs_[of].kind == Kind::Not) return exprs_[of].parts[0];
  return add({.kind = Kind::Not, .has_empty = !exprs_[of].has_empty, .parts = {of}});
}

LanguageId TextLanguages::repeat(LanguageId part, std::uint32_t min, std::uint32_t max) {
  if (max == 0) return empty();
  if (part == nothing()) return min == 0 ? empty() : nothing();
  if (part == empty() || part == anything()) return part;
  if (min == 1 && max == 1) return part;
  if (has_empty(part)) min = 0;
  if (exprs_[part].kind == Kind::Set && exprs_[part].set == CodePoints::all() && min == 0 &&
      max == kUnbounded) {
    return anything();
  }
  return add(
      {.kind = Kind::Repeat, .has_empty = min == 0, .parts = {part}, .min = min, .max = max});
}

LanguageId TextLanguages::derive(LanguageId id, char32_t c) {
  if (id == nothing() || id == empty()) return nothing();
  if (id == anything()) return id;
  const auto known = derived_.find({id, c});
  if (known != derived_.end()) return known->second;
  if (derived_.size() >= 10 * kMaxExpressions || depth_ > kMaxDerivationDepth) {
    fail(Errc::LimitExceeded, "a pattern that takes too many steps to work out");
  }
  ++depth_;
  const LanguageId out = derive_new(id, c);
  --depth_;
  derived_.emplace(std::pair(id, c), out);
  return out;
}

LanguageId TextLanguages::derive_new(LanguageId id, char32_t c) {
  const Expr expr = exprs_[id];  // a copy: the arena grows
  switch (expr.kind) {
    case Kind::Nothing:
    case Kind::Empty:
      return nothing();
    case Kind::Set:
      return expr.set.contains(c) ? empty() : nothing();
    case Kind::Sequence: {
      const LanguageId after_first = sequence(derive(expr.parts[0], c), expr.parts[1]);
      if (!has_empty(expr.parts[0])) return after_first;
      return either({after_first, derive(expr.parts[1], c)});
    }
    case Kind::Not:
      return complement(derive(expr.parts[0], c));
    case Kind::Repeat: {
      const std::uint32_t max = expr.max == kUnbounded ? expr.max : expr.max - 1;
      return sequence(derive(expr.parts[0], c),
                      repeat(expr.parts[0], expr.min > 0 ? expr.min - 1 : 0, max));
    }
    case Kind::Either:
    case Kind::Both:
      break;
  }
  std::vector<LanguageId> parts;
  for (const LanguageId part : expr.parts) parts.push_back(derive(part, c));
  return expr.kind == Kind::Either ? either(std::move(parts)) : both(std::move(parts));
}

bool TextLanguages::contains(LanguageId id, std::string_view utf8) {
  for (std::size_t at = 0; at < utf8.size();) {
    if (id == nothing() || id == anything()) break;
    const Utf8Step step = decode_utf8(utf8, at);
    id = derive(id, step.code_point);
    at += step.length;
  }
  return has_empty(id);
}

std::vector<CodePoints> TextLanguages::classes(LanguageId id) const {
  std::vector<LanguageId> left = {id};
  std::set<LanguageId> seen = {id};
  std::set<char32_t> begins = {0};  // of a stretch that every set takes or leaves as a whole
  std::vector<const CodePoints*> sets;
  while (!left.empty()) {
    const Expr& expr = exprs_[left.back()];
    left.pop_back();
    if (expr.kind == Kind::Set) {
      sets.push_back(&expr.set);
      for (const CodePoints::Range& range : expr.set.ranges()) {
        begins.insert(range.first);
        if (range.last < CodePoints::kLast) begins.insert(range.last + 1);
      }
    }
    for (const LanguageId part : expr.parts) {
      if (seen.insert(part).second) left.push_back(part);
    }
  }
  if (begins.size() * sets.size() > 20'000'000) {
    fail(Errc::LimitExceeded, "a pattern with too many different sets of characters");
  }
  std::map<std::vector<bool>, CodePoints> by_members;
  for (auto at = begins.begin(); at != begins.end(); ++at) {
    const char32_t first = *at;
    const char32_t last = std::next(at) == begins.end() ? CodePoints::kLast : *std::next(at) - 1;
    if (first >= 0xD800 && last <= 0xDFFF) continue;
    std::vector<bool> members;
    for (const CodePoints* set : sets) members.push_back(set->contains(first));
    by_members[members].add(first, last);
  }
  std::vector<CodePoints> out;
  for (auto& [unused, set] : by_members) out.push_back(std::move(set));
  return out;
}

namespace {

// Keeps the states from which an accepting one can be reached.
std::vector<std::uint8_t> live_states(const std::vector<std::vector<std::uint32_t>>& next,
                                      const std::vector<std::uint8_t>& accepts) {
  std::vector<std::vector<std::uint32_t>> before(next.size());
  for (std::uint32_t s = 0; s < next.size(); ++s) {
    for (const std::uint32_t target : next[s]) before[target].push_back(s);
  }
  std::vector<std::uint8_t> live(next.size(), 0);
  std::vector<std::uint32_t> left;
  for (std::uint32_t s = 0; s < next.size(); ++s) {
    if (accepts[s] != 0) left.push_back(s);
  }
  while (!left.empty()) {
    const std::uint32_t s = left.back();
    left.pop_back();
    if (live[s] != 0) continue;
    live[s] = 1;
    left.insert(left.end(), before[s].begin(), before[s].end());
  }
  return live;
}

// The group of each state; states of one group cannot be told apart. By splitting groups until
// nothing splits any more.
std::vector<std::uint32_t> equal_states(const std::vector<std::vector<std::uint32_t>>& next,
                                        const std::vector<std::uint8_t>& accepts) {
  std::vector<std::uint32_t> group(accepts.begin(), accepts.end());
  for (std::size_t n_groups = 0;;) {
    std::map<std::vector<std::uint32_t>, std::uint32_t> ids;
    std::vector<std::uint32_t> finer(next.size());
    for (std::size_t s = 0; s < next.size(); ++s) {
      std::vector<std::uint32_t> key = {group[s]};
      for (const std::uint32_t target : next[s]) key.push_back(group[target]);
      finer[s] =
          ids.try_emplace(std::move(key), static_cast<std::uint32_t>(ids.size())).first->second;
    }
    group = std::move(finer);
    if (ids.size() == n_groups || ids.size() == next.size()) return group;
    n_groups = ids.size();
  }
}

}  // namespace

TextDfa TextLanguages::automaton(LanguageId id, std::size_t max_states) {
  const std::vector<CodePoints> alphabet = classes(id);
  std::vector<LanguageId> states = {id};
  std::unordered_map<LanguageId, std::uint32_t> index = {{id, 0}};
  std::vector<std::vector<std::uint32_t>> next;
  std::vector<std::uint8_t> accepts;
  for (std::size_t s = 0; s < states.size(); ++s) {
    std::vector<std::uint32_t> row;
    for (const CodePoints& letters : alphabet) {
      const LanguageId target = derive(states[s], letters.ranges()[0].first);
      const auto [at, is_new] =
          index.try_emplace(target, static_cast<std::uint32_t>(states.size()));
      if (is_new) states.push_back(target);
      row.push_back(at->second);
    }
    if (states.size() > max_states || states.size() * alphabet.size() > 5'000'000) {
      fail(Errc::LimitExceeded, "a pattern with more than {} states", max_states);
    }
    accepts.push_back(has_empty(states[s]) ? 1 : 0);
    next.push_back(std::move(row));
  }
  const std::vector<std::uint8_t> live = live_states(next, accepts);
  if (live[0] == 0) return {};
  const std::vector<std::uint32_t> group =
      next.size() <= kMaxMinimized ? equal_states(next, accepts) : [&] {
        std::vector<std::uint32_t> own(next.size());
        for (std::uint32_t s = 0; s < own.size(); ++s) own[s] = s;
        return own;
      }();
  TextDfa out;
  std::unordered_map<std::uint32_t, std::uint32_t> number;  // of a group
  std::vector<std::uint32_t> member;                        // a state of each
  const auto state_of = [&](std::uint32_t s) {
    const auto [at, is_new] =
        number.try_emplace(group[s], static_cast<std::uint32_t>(member.size()));
    if (is_new) member.push_back(s);
    return at->second;
  };
  state_of(0);
  for (std::size_t i = 0; i < member.size(); ++i) {
    const std::uint32_t s = member[i];
    std::map<std::uint32_t, CodePoints> by_target;
    for (std::size_t a = 0; a < alphabet.size(); ++a) {
      if (live[next[s][a]] != 0) by_target[state_of(next[s][a])].add(alphabet[a]);
    }
    std::vector<TextDfa::Edge> edges;
    for (auto& [target, set] : by_target) edges.push_back({std::move(set), target});
    out.edges.push_back(std::move(edges));
    out.accepts.push_back(accepts[s]);
  }
  return out;
}

}  // namespace moeflux
