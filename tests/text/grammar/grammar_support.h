// Runs texts through grammars, for tests.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/lazy_automaton.h"

namespace moeflux::test {

class GrammarRun {
 public:
  explicit GrammarRun(const Grammar& grammar)
      : automaton_(std::make_shared<ByteAutomaton>(compile_grammar(grammar))) {}
  explicit GrammarRun(std::string_view gbnf) : GrammarRun(parse_gbnf(gbnf)) {}
  explicit GrammarRun(const Json& schema) : GrammarRun(json_schema_grammar(schema)) {}

  bool begins(std::string_view text) {
    return automaton_.walk(automaton_.start(), text) != LazyAutomaton::kDead;
  }
  bool accepts(std::string_view text) {
    return automaton_.may_end(automaton_.walk(automaton_.start(), text));
  }
  // How many bytes of the text are the prefix of a text of the grammar.
  std::size_t reach(std::string_view text) {
    std::size_t n = 0;
    while (n < text.size() && begins(text.substr(0, n + 1))) ++n;
    return n;
  }
  LazyAutomaton& automaton() { return automaton_; }

 private:
  LazyAutomaton automaton_;
};

}  // namespace moeflux::test
