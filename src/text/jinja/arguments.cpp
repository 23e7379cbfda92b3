#include "text/jinja/arguments.h"

#include <algorithm>

#include "base/error.h"
#include "text/jinja/operations.h"

namespace moeflux::jinja {

BoundArguments::BoundArguments(std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> names, std::size_t required)
    : function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    fail(Errc::BadInput, "{}() takes at most {} arguments, but {} are given", function,
         names_.size(), arguments.positional.size());
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(names_.begin(), names_.end(), name);
    if (place == names_.end()) {
      fail(Errc::BadInput, "{}() got an unexpected keyword argument '{}'", function, name);
    }
    const Value*& slot = values_[static_cast<std::size_t>(place - names_.begin())];
    if (slot != nullptr) {
      fail(Errc::BadInput, "{}() got multiple values for argument '{}'", function, name);
    }
    slot = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) {
      fail(Errc::BadInput, "{}() is missing its argument '{}'", function, names_[i]);
    }
  }
}

Value BoundArguments::value_or(std::size_t index, Value fallback) const {
  return has(index) ? *values_[index] : std::move(fallback);
}

bool BoundArguments::flag(std::size_t index, bool fallback) const {
  return has(index) ? truthy(*values_[index]) : fallback;
}

std::int64_t BoundArguments::integer(std::size_t index) const {
  require_defined(*values_[index]);
  if (!values_[index]->is_integral()) wrong_type(index, "an integer");
  return values_[index]->as_int();
}

std::int64_t BoundArguments::integer_or(std::size_t index, std::int64_t fallback) const {
  return has(index) ? integer(index) : fallback;
}

const MarkedString& BoundArguments::text(std::size_t index) const {
  require_defined(*values_[index]);
  if (!values_[index]->is_string()) wrong_type(index, "a string");
  return values_[index]->text();
}

void BoundArguments::wrong_type(std::size_t index, std::string_view wanted) const {
  fail(Errc::BadInput, "{}(): the argument '{}' must be {}, not {}", function_, names_[index],
       wanted, type_name(*values_[index]));
}

}  // namespace moeflux::jinja
