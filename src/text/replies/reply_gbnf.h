// Pieces of GBNF texts for the grammars of calls.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

// The text as a literal, quoted.
std::string gbnf_literal(std::string_view text);

// Rules of texts that do not contain `end`; the first is NAME-0.
std::string gbnf_rules_without(const std::string& name, std::string_view end);

// Rules for parts in any order, each at most once, the demanded ones exactly once. Since a rule is
// needed for each set of parts that may still come, of more than kMaxParts only the demanded ones
// are counted, and of more than kMaxDemanded not even they. Returns the name of the rule to begin
// with; the rules are appended to `rules`.
inline constexpr std::size_t kMaxParts = 6, kMaxDemanded = 4;
std::string gbnf_any_order(const std::string& name, const std::vector<std::string>& demanded,
                           const std::vector<std::string>& others, std::string& rules);

}  // namespace moeflux
