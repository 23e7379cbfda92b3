// Attributes, items and slices of values, by the rules of Jinja's sandbox: a.b looks for a method
// first and then for the key "b", a["b"] the other way round, and what is not there is undefined.
#pragma once

#include <string_view>

#include "text/jinja/runtime.h"

namespace moeflux::jinja {

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);
Value get_item(Runtime& runtime, const Value& object, const Value& index);
// A bound that is not given is none.
Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step);

}  // namespace moeflux::jinja
