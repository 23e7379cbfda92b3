#include "text/jinja/value.h"

#include <cmath>

#include "base/error.h"

namespace moeflux::jinja {
namespace {

constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);
constexpr std::size_t kEntryBytes = 160;  // two values and their place in the index
constexpr int kMaxKeyDepth = 20;          // of tuples within tuples

std::size_t sequence_bytes(const std::vector<Value>& items) {
  return sizeof(SequenceObject) + items.capacity() * sizeof(Value);
}

std::size_t hash_key(const Value& key, int depth = 0) {
  switch (key.kind()) {
    case Kind::None:
      return 1;
    case Kind::Undefined:
      return 2;
    case Kind::Bool:
    case Kind::Int:
      return std::hash<std::int64_t>{}(key.as_int());
    case Kind::Float: {
      const double number = key.as_real();
      const bool whole = std::trunc(number) == number && std::abs(number) < 9e18;
      return whole ? std::hash<std::int64_t>{}(static_cast<std::int64_t>(number))
                   : std::hash<double>{}(number);
    }
    case Kind::String:
      return std::hash<std::string_view>{}(key.view());
    case Kind::Tuple: {
      if (depth == kMaxKeyDepth) fail(Errc::LimitExceeded, "a key is nested too deep");
      std::size_t hash = 3;
      for (const Value& item : key.as<SequenceObject>().items) {
        hash = hash * 1000003 + hash_key(item, depth + 1);
      }
      return hash;
    }
    default:
      fail(Errc::BadInput, "unhashable type: '{}'", type_name(key));
  }
}

// For keys that hash_key() accepted, so the nesting is bounded.
bool equal_keys(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_real() == b.as_real();
  }
  if (a.kind() != b.kind()) return false;
  if (a.is_string()) return a.view() == b.view();
  if (!a.is(Kind::Tuple)) return true;
  const auto& left = a.as<SequenceObject>().items;
  const auto& right = b.as<SequenceObject>().items;
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), equal_keys);
}

}  // namespace

std::string_view Value::hint() const {
  return is_undefined() && string_ ? string_->text.view() : std::string_view{};
}

bool Value::same_as(const Value& other) const {
  if (kind_ != other.kind_) return false;
  if (is_none() || is_number() || is_string()) return equal_keys(*this, other);
  return !is_undefined() && object_.get() == other.object_.get();
}

std::string_view type_name(const Value& value) {
  constexpr std::string_view kViews[] = {"dict_keys", "dict_values", "dict_items"};
  constexpr std::string_view kNames[] = {
      "Undefined", "NoneType", "bool",  "int",       "float",     "str",      "list",       "tuple",
      "dict",      "view",     "range", "generator", "Namespace", "function", "LoopContext"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Kind::Loop) + 1);
  if (value.is_safe()) return "Markup";
  if (value.is(Kind::View)) return kViews[static_cast<std::size_t>(value.as<ViewObject>().what)];
  return kNames[static_cast<std::size_t>(value.kind())];
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
    case Kind::None:
      return false;
    case Kind::Bool:
      return value.as_bool();
    case Kind::Int:
      return value.as_int() != 0;
    case Kind::Float:
      return value.as_real() != 0;
    case Kind::String:
      return !value.text().empty();
    case Kind::List:
    case Kind::Tuple:
      return !value.as<SequenceObject>().items.empty();
    case Kind::Dict:
      return value.as<DictObject>().size() != 0;
    case Kind::View:
      return value.as<ViewObject>().dict->size() != 0;
    case Kind::Range:
      return value.as<RangeObject>().size() != 0;
    default:
      return true;
  }
}

SequenceObject::SequenceObject(Heap& heap, Meter& meter, std::vector<Value> all)
    : Object(heap), items(std::move(all)), charge_(meter, sequence_bytes(items)) {}

void SequenceObject::recharge() {
  charge_.set(sequence_bytes(items));
}

void DictObject::drop_children() noexcept {
  entries_.clear();
  index_.clear();
}

template <class Equal>
std::size_t DictObject::index_of(std::size_t hash, Equal equal) const {
  const auto [begin, end] = index_.equal_range(hash);
  for (auto place = begin; place != end; ++place) {
    meter_.step();
    if (equal(entries_[place->second].first)) return place->second;
  }
  return kNowhere;
}

const Value* DictObject::find(const Value& key) const {
  const std::size_t index =
      index_of(hash_key(key), [&](const Value& other) { return equal_keys(key, other); });
  return index == kNowhere ? nullptr : &entries_[index].second;
}

const Value* DictObject::find(std::string_view key) const {
  const std::size_t index = index_of(std::hash<std::string_view>{}(key), [&](const Value& other) {
    return other.is_string() && other.view() == key;
  });
  return index == kNowhere ? nullptr : &entries_[index].second;
}

void DictObject::set(const Value& key, Value value) {
  const std::size_t hash = hash_key(key);
  const std::size_t index =
      index_of(hash, [&](const Value& other) { return equal_keys(key, other); });
  if (index != kNowhere) {
    entries_[index].second = std::move(value);
    return;
  }
  charge_.set((entries_.size() + 1) * kEntryBytes);
  index_.emplace(hash, entries_.size());
  entries_.emplace_back(key, std::move(value));
}

bool DictObject::erase(const Value& key) {
  const std::size_t index =
      index_of(hash_key(key), [&](const Value& other) { return equal_keys(key, other); });
  if (index == kNowhere) return false;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index));
  reindex();
  return true;
}

void DictObject::reindex() {
  meter_.step(1 + entries_.size());
  index_.clear();
  for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(hash_key(entries_[i].first), i);
  charge_.set(entries_.size() * kEntryBytes);
}

std::uint64_t RangeObject::size() const {
  if (step > 0 && start < stop) {
    return (static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start) - 1) /
               static_cast<std::uint64_t>(step) +
           1;
  }
  if (step < 0 && start > stop) {
    return (static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(stop) - 1) /
               (0 - static_cast<std::uint64_t>(step)) +
           1;
  }
  return 0;
}

Value RangeObject::at(std::uint64_t index) const {
  return Value::integer(static_cast<std::int64_t>(static_cast<std::uint64_t>(start) +
                                                  index * static_cast<std::uint64_t>(step)));
}

IteratorObject::IteratorObject(Heap& heap, Meter& meter, std::vector<Value> all)
    : Object(heap), items(std::move(all)), charge_(meter, sequence_bytes(items)) {}

LoopObject::LoopObject(Heap& heap, Meter& meter, std::vector<Value> items)
    : Object(heap), items_(std::move(items)), charge_(meter, sequence_bytes(items_)) {}

void LoopObject::drop_children() noexcept {
  items_.clear();
  position_ = 0;
  accept = nullptr;
  recurse = nullptr;
  previous_.reset();
  current_.reset();
  next_.reset();
  last_changed.reset();
}

std::optional<Value> LoopObject::pull() {
  while (position_ < items_.size()) {
    Value& item = items_[position_++];
    if (!accept || accept(item)) return std::move(item);
  }
  return std::nullopt;
}

bool LoopObject::advance() {
  std::optional<Value> item = next_ ? std::exchange(next_, std::nullopt) : pull();
  if (!item) return false;
  ++index0;
  previous_ = std::move(current_);
  current_ = std::move(item);
  return true;
}

const Value* LoopObject::peek() {
  if (!next_) next_ = pull();
  return next_ ? &*next_ : nullptr;
}

std::size_t LoopObject::length() {
  if (length_) return *length_;
  if (!accept) {
    length_ = items_.size();
    return *length_;
  }
  // A filtered loop has to look at all items to know how many it will have.
  std::vector<Value> rest;
  while (std::optional<Value> item = pull()) rest.push_back(std::move(*item));
  length_ = rest.size() + static_cast<std::size_t>(index0 + 1) + (next_ ? 1 : 0);
  items_ = std::move(rest);
  position_ = 0;
  accept = nullptr;
  return *length_;
}

}  // namespace moeflux::jinja
