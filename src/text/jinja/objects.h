// The heap objects behind Value. They hold state and keep their memory charge; what the language
// does with them is in operations, access, methods and filters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace moeflux::jinja {

// List and Tuple.
class SequenceObject : public Object {
 public:
  SequenceObject(Heap& heap, Meter& meter, std::vector<Value> items);
  void drop_children() noexcept override { items.clear(); }
  // To be called after `items` grew.
  void recharge();

  std::vector<Value> items;
  bool is_input = false;  // part of the variables: only what Python's sandbox allows may change it
  bool is_group = false;  // a tuple of groupby, which also has the names grouper and list

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
  void clear();

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

class CyclerObject : public Object {
 public:
  CyclerObject(Heap& heap, std::vector<Value> all) : Object(heap), items(std::move(all)) {}
  void drop_children() noexcept override { items.clear(); }

  std::vector<Value> items;
  std::size_t position = 0;
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
