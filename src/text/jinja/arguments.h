// Gives the arguments of a call to a builtin their parameter names, as Python does.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"

namespace moeflux::jinja {

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

 private:
  [[noreturn]] void wrong_type(std::size_t index, std::string_view wanted) const;

  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace moeflux::jinja
