// A value of the template language, with Python's types. Small values are held inside, strings are
// shared and immutable, the rest are objects of the rendering's heap.
//
// Every value knows its origin: what came in with the variables is data, what the template wrote is
// markup. For strings the marks are per byte, in the MarkedString.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "text/jinja/heap.h"
#include "text/jinja/marked_string.h"
#include "text/jinja/meter.h"

namespace moeflux::jinja {

enum class Kind : std::uint8_t {
  Undefined,
  None,
  Bool,
  Int,
  Float,
  String,
  List,
  Tuple,
  Dict,
  View,  // what keys(), values() and items() of a dict return
  Range,
  Iterator,  // what map, select, reverse ... return: can be walked once, has no length
  Namespace,
  Function,
  Loop,
  Cycler,
};

struct StringObject {
  MarkedString text;
  bool safe = false;  // marked by `safe` or `escape`: what is added to it gets HTML-escaped
  MemoryCharge charge;
};
using StringRef = std::shared_ptr<const StringObject>;

class Value {
 public:
  Value() = default;  // undefined

  static Value undefined(StringRef hint) {
    Value value(Kind::Undefined, Origin::Markup);
    value.string_ = std::move(hint);
    return value;
  }
  static Value none(Origin origin = Origin::Markup) { return {Kind::None, origin}; }
  static Value boolean(bool value, Origin origin = Origin::Markup) {
    return {Kind::Bool, origin, std::int64_t{value}};
  }
  static Value integer(std::int64_t value, Origin origin = Origin::Markup) {
    return {Kind::Int, origin, value};
  }
  static Value real(double value, Origin origin = Origin::Markup) {
    return {Kind::Float, origin, std::bit_cast<std::int64_t>(value)};
  }
  static Value string(StringRef string) {
    Value value(Kind::String, Origin::Markup);
    value.string_ = std::move(string);
    return value;
  }
  template <class T>
  static Value object(Kind kind, const Ref<T>& object, Origin origin = Origin::Markup) {
    Value value(kind, origin);
    value.object_ = Ref<Object>(object.get());
    return value;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::Undefined; }
  bool is_none() const { return kind_ == Kind::None; }
  bool is_string() const { return kind_ == Kind::String; }
  bool is_sequence() const { return kind_ == Kind::List || kind_ == Kind::Tuple; }
  bool is_integral() const { return kind_ == Kind::Int || kind_ == Kind::Bool; }
  bool is_number() const { return is_integral() || kind_ == Kind::Float; }

  // Whether this very value, not what it contains, came from outside.
  Origin origin() const { return origin_; }

  bool as_bool() const { return scalar_ != 0; }
  // Int or Bool.
  std::int64_t as_int() const { return scalar_; }
  // Int, Bool or Float.
  double as_real() const {
    return kind_ == Kind::Float ? std::bit_cast<double>(scalar_) : static_cast<double>(scalar_);
  }
  const MarkedString& text() const { return string_->text; }
  std::string_view view() const { return text().view(); }
  bool is_safe() const { return is_string() && string_->safe; }
  // Why an undefined value is undefined; empty when nothing is known.
  std::string_view hint() const;

  template <class T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  // Python's `is`.
  bool same_as(const Value& other) const;

 private:
  Value(Kind kind, Origin origin, std::int64_t scalar = 0)
      : kind_(kind), origin_(origin), scalar_(scalar) {}

  Kind kind_ = Kind::Undefined;
  Origin origin_ = Origin::Markup;
  std::int64_t scalar_ = 0;  // Bool, Int, or the bits of a Float
  StringRef string_;         // String, or the hint of Undefined
  Ref<Object> object_;       // everything else
};

// Python's name of the type: "str", "list", "NoneType".
std::string_view type_name(const Value& value);

// Python's bool(value).
bool truthy(const Value& value);

}  // namespace moeflux::jinja
