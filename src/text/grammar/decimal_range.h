// Numbers between two bounds, written in decimal without exponent, as an expression of a grammar:
// exact, by comparing digits from the left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "text/grammar/grammar.h"

namespace moeflux {

struct DecimalBound {
  Json value;  // a number
  bool exclusive = false;
};

struct DecimalRange {
  std::optional<DecimalBound> low = {}, high = {};
  bool integer = false;
  std::uint32_t max_fraction = 6;  // digits after the point; more where a bound has more
};

// Nothing() of the grammar when no number lies between. Throws Unsupported for bounds outside of
// what is generated (18 digits for integers, 15 before the point for others).
ExprId add_decimal_range(Grammar& grammar, const DecimalRange& range);

}  // namespace moeflux
