// The methods that Python gives to str, list, tuple and dict, and Jinja to loop and cycler.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/runtime.h"

namespace moeflux::jinja {

struct MethodEntry {
  std::string_view name;
  Value (*body)(Runtime& runtime, const Value& self, const Arguments& arguments);
  bool forbidden_on_input = false;  // changes the object, and Python's sandbox refuses it
};

// Null when values of that kind have no such method.
const MethodEntry* find_method(Kind kind, std::string_view name);

// Templates run in a sandbox that forbids to change what they were given. Containers which the
// template itself made may be changed: several released templates keep queues that way.
bool may_call(const MethodEntry& method, const Value& self);

std::span<const MethodEntry> string_methods();
std::span<const MethodEntry> string_split_methods();
std::span<const MethodEntry> list_methods();
std::span<const MethodEntry> dict_methods();

}  // namespace moeflux::jinja
