// Regular languages over characters, with intersection and complement: what `pattern`, `format`,
// lengths and `not` of strings and of property names come to together.
//
// An expression is an id in an arena where equal expressions have one id. Its states are its
// derivatives: what may follow after a character was read. So a text is matched in time linear in
// its length for every expression seen before, and nothing backtracks. Work and memory are bounded
// by the number of expressions; past it every function throws LimitExceeded.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/grammar/grammar.h"

namespace moeflux {

using LanguageId = std::uint32_t;

// A deterministic automaton: state 0 begins, every state can still reach an accepting one. No
// states: the empty language.
struct TextDfa {
  struct Edge {
    CodePoints characters;
    std::uint32_t target;
  };
  std::vector<std::vector<Edge>> edges;  // by state; the sets of one state are disjoint
  std::vector<std::uint8_t> accepts;
  std::size_t size() const { return edges.size(); }
};

class TextLanguages {
 public:
  static constexpr std::uint32_t kUnbounded = Grammar::kUnbounded;
  static constexpr std::size_t kMaxExpressions = 200'000;

  TextLanguages();

  LanguageId nothing() const { return 0; }
  LanguageId empty() const { return 1; }     // the text ""
  LanguageId anything() const { return 2; }  // all texts
  LanguageId characters(CodePoints set);     // one character of the set
  LanguageId text(std::string_view utf8);
  LanguageId sequence(LanguageId first, LanguageId rest);
  LanguageId either(std::vector<LanguageId> parts);
  LanguageId both(std::vector<LanguageId> parts);
  LanguageId complement(LanguageId of);
  LanguageId repeat(LanguageId part, std::uint32_t min, std::uint32_t max);

  bool has_empty(LanguageId id) const { return exprs_[id].has_empty; }
  bool contains(LanguageId id, std::string_view utf8);
  // Smallest automaton. Throws LimitExceeded past so many states.
  TextDfa automaton(LanguageId id, std::size_t max_states);

 private:
  enum class Kind : std::uint8_t { Nothing, Empty, Set, Sequence, Either, Both, Not, Repeat };
  struct Expr {
    Kind kind;
    bool has_empty;
    CodePoints set = {};
    std::vector<LanguageId> parts = {};
    std::uint32_t min = 0, max = 0;
  };
  LanguageId add(Expr expr);
  LanguageId derive(LanguageId id, char32_t c);
  LanguageId derive_new(LanguageId id, char32_t c);
  // One character of each class of characters that the expression does not tell apart.
  std::vector<CodePoints> classes(LanguageId id) const;

  std::vector<Expr> exprs_;
  std::unordered_multimap<std::size_t, LanguageId> by_hash_;
  std::map<std::pair<LanguageId, char32_t>, LanguageId> derived_;
  int depth_ = 0;  // of derive(); left behind by an error, after which the arena is of no use
};

}  // namespace moeflux
