// Pieces of GBNF that grammars of replies are made of.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace moeflux {

std::string gbnf_literal(std::string_view text);  // quoted

// Rules of texts that do not contain `end`; the first is NAME-0.
std::string gbnf_rules_without(const std::string& name, std::string_view end);

// Rules for parts in any order, each at most once, the demanded ones exactly once; of too many of
// them not all are counted. Returns the name of the rule to begin with; the rules are appended to
// `rules`.
std::string gbnf_any_order(const std::string& name, const std::vector<std::string>& demanded,
                           const std::vector<std::string>& others, std::string& rules);

// What stands for the arguments of a function as one JSON object: a rule whose schema is added to
// `schemas`, or `none` where it takes none. Without `use_schemas` any object will do.
std::string gbnf_arguments(const std::string& rule, const Json& function, const std::string& none,
                           bool use_schemas, std::map<std::string, Json>& schemas);

}  // namespace moeflux
