// A value of the template language, with Python's types. Small values are held inside, strings are
// shared and immutable, the rest are objects of the rendering's heap.
//
// Every value knows its origin: what came in with the variables is data, what the template wrote is
// markup. For strings the marks are per byte, in the MarkedString.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

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

// ---- the heap objects behind Value: they hold state and keep their memory charge

// List and Tuple.
class SequenceObject : public Object {
 public:
  SequenceObject(Heap& heap, Meter& meter, std::vector<Value> items);
  void drop_children() noexcept override { items.clear(); }
  // To be called after `items` grew.
  void recharge();

  std::vector<Value> items;
  bool is_input = false;  // part of the variables: only what Python's sandbox allows may change it

 private:
  MemoryCharge charge_;
};

// A dict that keeps insertion order. Keys are hashable values; equal numbers are one key.
class DictObject : public Object {
 public:
  using Entry = std::pair<Value, Value>;

  DictObject(Heap& heap, Meter& meter) : Object(heap), meter_(meter), charge_(meter, 0) {}
  void drop_children() noexcept override;

  const std::vector<Entry>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);
  bool erase(const Value& key);

  bool is_input = false;

 private:
  template <class Equal>
  std::size_t index_of(std::size_t hash, Equal equal) const;
  void reindex();

  Meter& meter_;
  std::vector<Entry> entries_;
  std::unordered_multimap<std::size_t, std::size_t> index_;  // hash -> place in entries_
  MemoryCharge charge_;
};

class ViewObject : public Object {
 public:
  enum class What { Keys, Values, Items };
  ViewObject(Heap& heap, Ref<DictObject> viewed, What part)
      : Object(heap), dict(std::move(viewed)), what(part) {}
  void drop_children() noexcept override { dict = {}; }

  Ref<DictObject> dict;
  What what;
};

class RangeObject : public Object {
 public:
  RangeObject(Heap& heap, std::int64_t first, std::int64_t end, std::int64_t by)
      : Object(heap), start(first), stop(end), step(by) {}
  void drop_children() noexcept override {}
  std::uint64_t size() const;
  Value at(std::uint64_t index) const;

  const std::int64_t start, stop, step;
};

class IteratorObject : public Object {
 public:
  IteratorObject(Heap& heap, Meter& meter, std::vector<Value> all);
  void drop_children() noexcept override { items.clear(); }

  std::vector<Value> items;
  std::size_t position = 0;

 private:
  MemoryCharge charge_;
};

class NamespaceObject : public Object {
 public:
  NamespaceObject(Heap& heap, Meter& meter)
      : Object(heap), attributes(heap.make<DictObject>(meter)) {}
  void drop_children() noexcept override { attributes = {}; }

  Ref<DictObject> attributes;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class FunctionObject : public Object {
 public:
  using Body = std::function<Value(Arguments&)>;
  FunctionObject(Heap& heap, Meter& meter, std::string function_name, Body function_body)
      : Object(heap),
        name(std::move(function_name)),
        body(std::move(function_body)),
        charge_(meter, sizeof(*this)) {}
  void drop_children() noexcept override { body = nullptr; }

  std::string name;
  Body body;
  bool is_macro = false;

 private:
  MemoryCharge charge_;
};

// The `loop` variable. Items are pulled one by one, because the filter of a loop may depend on what
// its body has done so far.
class LoopObject : public Object {
 public:
  using Accept = std::function<bool(const Value&)>;
  using Recurse = std::function<Value(const Value& iterable, int depth0)>;

  LoopObject(Heap& heap, Meter& meter, std::vector<Value> items);
  void drop_children() noexcept override;

  bool advance();  // to the next item; false at the end
  const Value& current() const { return *current_; }
  const Value* previous() const { return previous_ ? &*previous_ : nullptr; }
  const Value* peek();  // the item after the current one, or null
  std::size_t length();

  Accept accept;    // empty: every item
  Recurse recurse;  // empty: not a recursive loop
  std::int64_t index0 = -1;
  int depth0 = 0;
  std::optional<std::vector<Value>> last_changed;

 private:
  std::optional<Value> pull();

  std::vector<Value> items_;
  std::size_t position_ = 0;
  std::optional<Value> previous_, current_, next_;
  std::optional<std::size_t> length_;
  MemoryCharge charge_;
};

}  // namespace moeflux::jinja
