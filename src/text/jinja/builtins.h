// What the language has by name: filters, tests, methods of values and global functions. Those of
// Jinja and Python that released chat templates use, and their near relatives; any other name is an
// error that says it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"

namespace moeflux::jinja {

// Gives the arguments of a call to a builtin their parameter names, as Python does.
class BoundArguments {
 public:
  // The first `required` names must be given; what has no name is an error.
  BoundArguments(std::string_view function, const Arguments& arguments,
                 std::initializer_list<std::string_view> names, std::size_t required = 0);

  bool has(std::size_t index) const { return values_[index] != nullptr; }
  const Value& operator[](std::size_t index) const { return *values_[index]; }
  // Absent and none are the same for most optional arguments.
  bool given(std::size_t index) const { return has(index) && !values_[index]->is_none(); }

  Value value_or(std::size_t index, Value fallback) const;
  bool flag(std::size_t index, bool fallback) const;
  std::int64_t integer(std::size_t index) const;
  std::int64_t integer_or(std::size_t index, std::int64_t fallback) const;
  // The argument must be a string.
  const MarkedString& text(std::size_t index) const;
  const MarkedString* text_or_null(std::size_t index) const {
    return given(index) ? &text(index) : nullptr;
  }

 private:
  [[noreturn]] void wrong_type(std::size_t index, std::string_view wanted) const;

  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

// ---- filters and tests

struct FilterEntry {
  std::string_view name;
  Value (*body)(Runtime& runtime, const Value& input, const Arguments& arguments);
};

// These throw when there is none of that name.
Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                   const Arguments& arguments);
bool apply_test(Runtime& runtime, std::string_view name, const Value& input,
                const Arguments& arguments);

std::span<const FilterEntry> scalar_filters();
std::span<const FilterEntry> sequence_filters();

// ---- methods

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

// ---- global functions

// Undefined when there is no such function.
Value find_global(Runtime& runtime, std::string_view name);

}  // namespace moeflux::jinja
