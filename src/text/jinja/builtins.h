// What the language has by name: filters, tests, methods of values and global functions. Those of
// Jinja and Python that released chat templates use, and their near relatives; any other name is an
// error that says it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace moeflux::jinja {

// The parameters of a builtin, of which the first `required` must be given.
struct Signature {
  static constexpr std::size_t kMost = 4;
  std::array<std::string_view, kMost> names = {};
  std::size_t required = 0;
  bool is_any = false;  // takes what it is given, and looks at all() itself

  std::size_t size() const;
};
inline constexpr Signature kAnyArguments{.is_any = true};

// Gives the arguments of a call to a builtin their parameter names, as Python does.
class BoundArguments {
 public:
  // An argument that has no parameter is an error. Neither signature nor arguments are copied.
  BoundArguments(std::string_view function, const Signature& signature, const Arguments& arguments);

  const Arguments& all() const { return arguments_; }
  bool has(std::size_t index) const { return values_[index] != nullptr; }
  const Value& operator[](std::size_t index) const { return *values_[index]; }
  // Absent and none are the same for most optional arguments.
  bool given(std::size_t index) const { return has(index) && !values_[index]->is_none(); }

  Value value_or(std::size_t index, Value fallback) const {
    return has(index) ? *values_[index] : std::move(fallback);
  }
  bool flag(std::size_t index, bool fallback) const {
    return has(index) ? truthy(*values_[index]) : fallback;
  }
  std::int64_t integer(std::size_t index) const;
  std::int64_t integer_or(std::size_t index, std::int64_t fallback) const {
    return has(index) ? integer(index) : fallback;
  }
  // The argument must be a string.
  const MarkedString& text(std::size_t index) const;
  const MarkedString* text_or_null(std::size_t index) const {
    return given(index) ? &text(index) : nullptr;
  }

 private:
  [[noreturn]] void wrong_type(std::size_t index, std::string_view wanted) const;

  std::string_view function_;
  const Signature& signature_;
  const Arguments& arguments_;
  std::array<const Value*, Signature::kMost> values_ = {};
};

// A filter or a method.
struct Builtin {
  std::string_view name;
  Value (*body)(Runtime& runtime, const Value& self, const BoundArguments& bound);
  Signature signature = {};
  bool forbidden_on_input = false;  // changes the object, and Python's sandbox refuses it

  Value call(Runtime& runtime, const Value& self, const Arguments& arguments) const {
    return body(runtime, self, {name, signature, arguments});
  }
};

// An entry of a table, or null.
template <class Table>
auto find_builtin(const Table& table, std::string_view name) -> decltype(&*std::begin(table)) {
  for (const auto& entry : table) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

// ---- filters and tests

// These throw when there is none of that name.
Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                   const Arguments& arguments);
bool apply_test(Runtime& runtime, std::string_view name, const Value& input,
                const Arguments& arguments);

std::span<const Builtin> scalar_filters();
std::span<const Builtin> sequence_filters();

// ---- methods

// Null when values of that kind have no such method.
const Builtin* find_method(Kind kind, std::string_view name);

// Templates run in a sandbox that forbids to change what they were given. Containers which the
// template itself made may be changed: several released templates keep queues that way.
bool may_call(const Builtin& method, const Value& self);

std::span<const Builtin> string_methods();

// ---- global functions

// Undefined when there is no such function.
Value find_global(Runtime& runtime, std::string_view name);

}  // namespace moeflux::jinja
