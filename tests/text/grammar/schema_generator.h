// Random JSON schemas that have at least one valid value.
#pragma once

#include "base/json.h"
#include "support/random.h"

namespace moeflux::test {

Json random_schema(Random& random);

}  // namespace moeflux::test
