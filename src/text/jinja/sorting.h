// What lists and dicts are built from: stable sorting by keys, and dict(...) with its many forms.
#pragma once

#include <vector>

#include "text/jinja/runtime.h"

namespace moeflux::jinja {

// sorted(items, key=keys): `keys[i]` is the key of `items[i]`.
std::vector<Value> sorted(Runtime& runtime, const std::vector<Value>& items,
                          const std::vector<Value>& keys, bool reverse);

// What dict.update() does with its arguments: a mapping or a list of pairs, then keywords.
void update_dict(Runtime& runtime, DictObject& dict, const Arguments& arguments);

}  // namespace moeflux::jinja
