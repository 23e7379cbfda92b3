// Multiples of a number in decimal: the digits of a range are followed together with the remainder
// of what was read so far.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "text/grammar/schema_compiler.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kMaxStep = 1'000'000;
constexpr std::uint32_t kMaxFraction = 12;
constexpr std::size_t kMaxMultipleStates = 8000;
constexpr std::size_t kMaxRangeStates = 2000;

// value = whole / 10^fraction
struct Step {
  std::uint64_t whole = 0;
  std::uint32_t fraction = 0;
  bool refused = false;
};

std::optional<Step> exact_step(const Json& value, bool refused) {
  const std::string text = dump_json(value);
  Step step = {.refused = refused};
  int exponent = 0;
  bool point = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '.') {
      point = true;
    } else if (text[i] == 'e' || text[i] == 'E') {
      exponent += std::atoi(text.c_str() + i + 1);
      break;
    } else if (text[i] >= '0' && text[i] <= '9') {
      if (step.whole > kMaxStep * 10) return std::nullopt;
      step.whole = step.whole * 10 + static_cast<std::uint64_t>(text[i] - '0');
      if (point) --exponent;
    }
  }
  while (step.whole > 0 && step.whole % 10 == 0 && exponent < 0) {
    step.whole /= 10;
    ++exponent;
  }
  for (; exponent > 0; --exponent) {
    step.whole *= 10;
    if (step.whole > kMaxStep) return std::nullopt;
  }
  step.fraction = static_cast<std::uint32_t>(-exponent);
  if (step.whole == 0 || step.whole > kMaxStep || step.fraction > kMaxFraction) return std::nullopt;
  return step;
}

// What is known of the digits so far.
struct Remainder {
  std::uint64_t rest = 0;
  std::uint32_t n_fraction = 0;  // digits after the point that counted
  bool point = false;
  bool off = false;  // past the fraction of the step with a digit that is not 0
  auto operator<=>(const Remainder&) const = default;
};

Remainder after_digit(Remainder r, const Step& step, unsigned digit) {
  if (r.off) return r;
  if (r.point) {
    if (r.n_fraction == step.fraction) {
      if (digit != 0) r = {.rest = 0, .n_fraction = 0, .point = true, .off = true};
      return r;
    }
    ++r.n_fraction;
  }
  r.rest = (r.rest * 10 + digit) % step.whole;
  return r;
}

bool is_multiple(const Remainder& r, const Step& step) {
  if (r.off) return false;
  std::uint64_t rest = r.rest;
  for (std::uint32_t i = r.n_fraction; i < step.fraction; ++i) rest = rest * 10 % step.whole;
  return rest == 0;
}

LanguageId language_of(TextLanguages& l, const Grammar& grammar, ExprId id) {
  const GrammarExpr& expr = grammar.expr(id);
  std::vector<LanguageId> parts;
  for (const ExprId part : expr.parts) parts.push_back(language_of(l, grammar, part));
  switch (expr.kind) {
    case GrammarExpr::Kind::Literal:
      return l.text(expr.literal);
    case GrammarExpr::Kind::Set:
      return l.characters(expr.set);
    case GrammarExpr::Kind::Sequence: {
      LanguageId out = l.empty();
      for (std::size_t i = parts.size(); i-- > 0;) out = l.sequence(parts[i], out);
      return out;
    }
    case GrammarExpr::Kind::Choice:
      return l.either(std::move(parts));
    case GrammarExpr::Kind::Repeat:
      return l.repeat(parts[0], expr.min, expr.max);
    case GrammarExpr::Kind::Rule:
      break;
  }
  fail(Errc::Unsupported, "a range with rules");
}

class Multiples {
 public:
  Multiples(Grammar& grammar, const TextDfa& range, const std::vector<Step>& steps)
      : grammar_(grammar), range_(range), steps_(steps) {}

  std::optional<ExprId> run() {
    if (range_.size() == 0) return grammar_.nothing();
    state({0, std::vector<Remainder>(steps_.size())});
    struct Edge {
      char c;
      std::size_t target;
    };
    std::vector<std::vector<Edge>> edges;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (states_.size() > kMaxMultipleStates) return std::nullopt;
      const State here = states_[i];
      std::vector<Edge> out;
      for (const TextDfa::Edge& edge : range_.edges[here.range]) {
        for (const char c : std::string("-.0123456789")) {
          if (!edge.characters.contains(static_cast<char32_t>(c))) continue;
          out.push_back({c, state(after(here, c, edge.target))});
        }
      }
      edges.push_back(std::move(out));
    }
    std::vector<RuleId> rules;
    for (std::size_t i = 0; i < states_.size(); ++i) rules.push_back(grammar_.declare("multiple"));
    for (std::size_t i = 0; i < states_.size(); ++i) {
      std::vector<ExprId> ways;
      if (accepts(states_[i])) ways.push_back(grammar_.literal(""));
      std::map<std::size_t, CodePoints> by_target;
      for (const Edge& edge : edges[i]) {
        const auto c = static_cast<char32_t>(edge.c);
        by_target[edge.target].add(c, c);
      }
      for (auto& [target, set] : by_target) {
        ways.push_back(
            grammar_.sequence({grammar_.set(std::move(set)), grammar_.rule(rules[target])}));
      }
      grammar_.define(rules[i],
                      ways.empty() ? grammar_.nothing() : grammar_.choice(std::move(ways)));
    }
    return grammar_.rule(rules[0]);
  }

 private:
  struct State {
    std::uint32_t range = 0;
    std::vector<Remainder> rests = {};
    auto operator<=>(const State&) const = default;
  };

  std::size_t state(const State& s) {
    const auto [at, is_new] = index_.try_emplace(s, states_.size());
    if (is_new) states_.push_back(s);
    return at->second;
  }

  State after(State s, char c, std::uint32_t range) const {
    s.range = range;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (c == '.') s.rests[i].point = true;
      if (c >= '0') s.rests[i] = after_digit(s.rests[i], steps_[i], static_cast<unsigned>(c - '0'));
    }
    return s;
  }

  bool accepts(const State& s) const {
    if (range_.accepts[s.range] == 0) return false;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (is_multiple(s.rests[i], steps_[i]) == steps_[i].refused) return false;
    }
    return true;
  }

  Grammar& grammar_;
  const TextDfa& range_;
  const std::vector<Step>& steps_;
  std::map<State, std::size_t> index_;
  std::vector<State> states_;
};

}  // namespace

std::optional<ExprId> add_multiples(Grammar& grammar, const DecimalRange& range,
                                    const std::vector<Json>& steps,
                                    const std::vector<Json>& others) {
  std::vector<Step> exact;
  DecimalRange digits = range;
  for (const std::vector<Json>* list : {&steps, &others}) {
    for (const Json& value : *list) {
      const auto step = exact_step(value, list == &others);
      if (!step) return std::nullopt;
      digits.max_fraction = std::max(digits.max_fraction, step->fraction);
      exact.push_back(*step);
    }
  }
  // Shorter numbers where long ones take too many states.
  for (const double limit : {0.0, 1e9, 1e6}) {
    if (limit > 0.0) {
      if (!digits.low || digits.low->value.get<double>() < -limit)
        digits.low = DecimalBound{-limit};
      if (!digits.high || digits.high->value.get<double>() > limit)
        digits.high = DecimalBound{limit};
    }
    Grammar scratch;
    const ExprId texts = add_decimal_range(scratch, digits);
    TextLanguages languages;
    try {
      const TextDfa dfa =
          languages.automaton(language_of(languages, scratch, texts), kMaxRangeStates);
      if (limit > 0.0 && dfa.size() == 0) break;
      if (const auto way = Multiples(grammar, dfa, exact).run()) return way;
    } catch (const Error& error) {
      if (error.code() != Errc::LimitExceeded) throw;
    }
  }
  return std::nullopt;
}

}  // namespace moeflux
