// Reading JSON that another program sends, where everything may be missing or of another type: what
// is not there as expected counts as absent.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/json.h"

namespace moeflux::cli {

// Nothing for a null, too.
inline const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// member(member(object, a), b) and so on.
template <class... Keys>
const Json* member(const Json& object, const char* key, Keys... more) {
  const Json* inner = member(object, key);
  return inner == nullptr ? nullptr : member(*inner, more...);
}

inline std::string text_or_empty(const Json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

inline double number_or_zero(const Json* value) {
  return value != nullptr && value->is_number() ? value->get<double>() : 0;
}

// A number of things: not negative.
inline std::int64_t count_or_zero(const Json* value) {
  const double number = number_or_zero(value);
  if (!(number > 0)) return 0;
  constexpr double kMost = 9e18;  // below the largest integer
  return number > kMost ? std::numeric_limits<std::int64_t>::max()
                        : static_cast<std::int64_t>(number);
}

}  // namespace moeflux::cli
