// Says whether a JSON value is valid under a JSON schema, straight from the meaning of the
// keywords: the judge of what grammars let through, and written without looking at them.
#pragma once

#include <string>

#include "base/json.h"

namespace moeflux::test {

// "" when valid, otherwise where and why not. Throws std::logic_error for a keyword it does not
// know.
std::string find_violation(const Json& schema, const Json& value);

}  // namespace moeflux::test
