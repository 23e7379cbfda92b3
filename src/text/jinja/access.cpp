#include <algorithm>
#include <optional>

#include "base/error.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace moeflux::jinja {
namespace {

std::string describe_type(const Value& object) {
  return object.is_none() ? "None" : std::string(type_name(object)) + " object";
}

Value missing_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  return runtime.undefined(fmt::format("'{}' has no attribute {}", describe_type(object),
                                       string_repr(name.substr(0, 200))));
}

std::optional<Value> loop_attribute(Runtime& runtime, LoopObject& loop, std::string_view name) {
  const auto integer = [](std::int64_t value) { return Value::integer(value); };
  if (name == "index") return integer(loop.index0 + 1);
  if (name == "index0") return integer(loop.index0);
  if (name == "length") return integer(static_cast<std::int64_t>(loop.length()));
  if (name == "revindex") return integer(static_cast<std::int64_t>(loop.length()) - loop.index0);
  if (name == "revindex0") {
    return integer(static_cast<std::int64_t>(loop.length()) - loop.index0 - 1);
  }
  if (name == "depth") return integer(loop.depth0 + 1);
  if (name == "depth0") return integer(loop.depth0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(loop.peek() == nullptr);
  if (name == "previtem") {
    const Value* item = loop.previous();
    return item != nullptr ? *item : runtime.undefined("there is no previous item");
  }
  if (name == "nextitem") {
    const Value* item = loop.peek();
    return item != nullptr ? *item : runtime.undefined("there is no next item");
  }
  return std::nullopt;
}

// What Python finds with getattr(): methods and properties, not keys.
std::optional<Value> own_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.is(Kind::Loop)) {
    if (auto found = loop_attribute(runtime, object.as<LoopObject>(), name)) return found;
  }
  if (object.is(Kind::Namespace)) {
    const Value* found = object.as<NamespaceObject>().attributes->find(name);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  if (object.is(Kind::Function) && name == "name") {
    return runtime.string(object.as<FunctionObject>().name);
  }
  const Builtin* method = find_method(object.kind(), name);
  if (method == nullptr) return std::nullopt;
  if (!may_call(*method, object)) {
    return runtime.undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
  }
  return runtime.function(std::string(name), [&runtime, object, method](Arguments& arguments) {
    return method->call(runtime, object, arguments);
  });
}

// Where an index of Python, which may count from the end, points to; nothing when outside.
std::optional<std::size_t> position(std::int64_t index, std::uint64_t size) {
  const auto length = static_cast<std::int64_t>(size);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  return static_cast<std::size_t>(index);
}

std::optional<Value> character_at(Runtime& runtime, const MarkedString& text, std::int64_t index) {
  runtime.meter.text(text.size());
  std::size_t at = 0;
  if (index < 0) {
    at = text.size();
    for (; index < 0; ++index) {
      if (at == 0) return std::nullopt;
      at -= decode_before(text.bytes(), at).size;
    }
  } else {
    at = byte_of_character(text.bytes(), static_cast<std::size_t>(index));
    if (at >= text.size()) return std::nullopt;
  }
  return runtime.string(text.substr(at, at + decode(text.bytes(), at).size));
}

// object[index], or nothing where Python raises a LookupError or TypeError.
std::optional<Value> own_item(Runtime& runtime, const Value& object, const Value& index) {
  if (object.is(Kind::Dict)) {
    if (index.is(Kind::List) || index.is(Kind::Dict) || index.is(Kind::View)) return std::nullopt;
    const Value* found = object.as<DictObject>().find(index);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  if (!index.is_integral()) return std::nullopt;
  if (object.is_string()) return character_at(runtime, object.text(), index.as_int());
  if (object.is_sequence()) {
    const auto& items = object.as<SequenceObject>().items;
    const auto at = position(index.as_int(), items.size());
    return at ? std::optional(items[*at]) : std::nullopt;
  }
  if (object.is(Kind::Range)) {
    const auto& range = object.as<RangeObject>();
    const auto at = position(index.as_int(), range.size());
    return at ? std::optional(range.at(*at)) : std::nullopt;
  }
  return std::nullopt;
}

// The positions start, start + step, ... that a slice selects out of `size`.
struct SliceBounds {
  std::int64_t start, step;
  std::uint64_t count;
};

SliceBounds slice_bounds(const Value& start, const Value& stop, const Value& step,
                         std::size_t size) {
  const auto number = [](const Value& value, std::int64_t fallback) {
    require_defined(value);
    if (value.is_none()) return fallback;
    if (!value.is_integral()) {
      fail(Errc::BadInput, "slice indices must be integers or None, not {}", type_name(value));
    }
    return value.as_int();
  };
  const auto length = static_cast<std::int64_t>(size);
  const std::int64_t by = std::max<std::int64_t>(number(step, 1), -INT64_MAX);
  if (by == 0) fail(Errc::BadInput, "slice step cannot be zero");
  const std::int64_t lowest = by > 0 ? 0 : -1;
  const std::int64_t highest = by > 0 ? length : length - 1;
  const auto clamp = [&](std::int64_t index) {
    if (index < 0) index += length;
    return std::clamp(index, lowest, highest);
  };
  const std::int64_t first =
      start.is_none() ? (by > 0 ? lowest : highest) : clamp(number(start, 0));
  const std::int64_t last = stop.is_none() ? (by > 0 ? highest : lowest) : clamp(number(stop, 0));
  const std::int64_t span = by > 0 ? last - first : first - last;
  const std::int64_t stride = by > 0 ? by : -by;
  const std::int64_t count = span <= 0 ? 0 : (span - 1) / stride + 1;
  return {first, by, static_cast<std::uint64_t>(count)};
}

Value slice_string(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                   const Value& step) {
  const MarkedString& text = object.text();
  runtime.meter.text(text.size());
  const SliceBounds bounds = slice_bounds(start, stop, step, count_characters(text.bytes()));
  if (bounds.step == 1) {
    const std::size_t begin =
        byte_of_character(text.bytes(), static_cast<std::size_t>(bounds.start));
    const std::size_t bytes = byte_of_character(text.view().substr(begin), bounds.count);
    return runtime.string(text.substr(begin, begin + bytes), object.is_safe());
  }
  runtime.meter.check_items(text.size(), 2 * sizeof(std::size_t));
  std::vector<std::size_t> begins;
  for (std::size_t at = 0; at < text.size(); at += decode(text.bytes(), at).size) {
    begins.push_back(at);
  }
  begins.push_back(text.size());
  TextBuilder out(runtime);
  std::int64_t at = bounds.start;
  for (std::uint64_t i = 0; i < bounds.count; ++i, at += bounds.step) {
    const auto index = static_cast<std::size_t>(at);
    out.append(text, begins[index], begins[index + 1]);
  }
  return out.value(object.is_safe());
}

void append_view(Runtime& runtime, const ViewObject& view, std::vector<Value>& items) {
  for (const auto& [key, value] : view.dict->entries()) {
    items.push_back(view.what == ViewObject::What::Keys     ? key
                    : view.what == ViewObject::What::Values ? value
                                                            : runtime.tuple({key, value}));
  }
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  require_defined(object);
  if (name.starts_with("__")) {
    return runtime.undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
  }
  if (auto found = own_attribute(runtime, object, name)) return *found;
  if (object.is(Kind::Dict)) {
    if (const Value* item = object.as<DictObject>().find(name)) return *item;
  }
  return missing_attribute(runtime, object, name);
}

Value get_item(Runtime& runtime, const Value& object, const Value& index) {
  require_defined(object);
  if (auto found = own_item(runtime, object, index)) return *found;
  if (index.is_string()) {
    if (auto found = own_attribute(runtime, object, index.view())) return *found;
    return missing_attribute(runtime, object, index.view());
  }
  return runtime.undefined(
      fmt::format("{} has no element {}", describe_type(object), to_repr(runtime, index).view()));
}

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  require_defined(object);
  if (object.is_string()) return slice_string(runtime, object, start, stop, step);
  if (!object.is_sequence()) {
    fail(Errc::BadInput, "'{}' object cannot be sliced", type_name(object));
  }
  const auto& source = object.as<SequenceObject>().items;
  const SliceBounds bounds = slice_bounds(start, stop, step, source.size());
  std::vector<Value> items;
  items.reserve(bounds.count);
  std::int64_t at = bounds.start;
  for (std::uint64_t i = 0; i < bounds.count; ++i, at += bounds.step) {
    items.push_back(source[static_cast<std::size_t>(at)]);
  }
  return runtime.sequence(object.kind(), std::move(items));
}

// ---- containers

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
    case Kind::String:
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::View:
    case Kind::Range:
    case Kind::Iterator:
      return true;
    default:
      return false;
  }
}

std::vector<Value> items_of(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::Undefined:
      break;
    case Kind::String: {
      const MarkedString& text = value.text();
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = at + decode(text.bytes(), at).size;
        items.push_back(runtime.string(text.substr(at, end)));
        runtime.meter.step();
        at = end;
      }
      break;
    }
    case Kind::List:
    case Kind::Tuple:
      items = value.as<SequenceObject>().items;
      break;
    case Kind::Dict:
      for (const auto& [key, ignored] : value.as<DictObject>().entries()) items.push_back(key);
      break;
    case Kind::View:
      append_view(runtime, value.as<ViewObject>(), items);
      break;
    case Kind::Range: {
      const auto& range = value.as<RangeObject>();
      runtime.meter.step(range.size());
      for (std::uint64_t i = 0; i < range.size(); ++i) items.push_back(range.at(i));
      break;
    }
    case Kind::Iterator: {
      auto& iterator = value.as<IteratorObject>();
      const auto begin = iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.position);
      items.assign(begin, iterator.items.end());
      iterator.position = iterator.items.size();
      break;
    }
    default:
      fail(Errc::BadInput, "'{}' object is not iterable", type_name(value));
  }
  runtime.meter.step(1 + items.size());
  return items;
}

std::size_t length_of(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
      return 0;
    case Kind::String:
      runtime.meter.text(value.text().size());
      return count_characters(value.view());
    case Kind::List:
    case Kind::Tuple:
      return value.as<SequenceObject>().items.size();
    case Kind::Dict:
      return value.as<DictObject>().size();
    case Kind::View:
      return value.as<ViewObject>().dict->size();
    case Kind::Range:
      return value.as<RangeObject>().size();
    case Kind::Loop:
      return value.as<LoopObject>().length();
    default:
      fail(Errc::BadInput, "object of type '{}' has no len()", type_name(value));
  }
}

void update_dict(Runtime& runtime, DictObject& dict, const Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    fail(Errc::BadInput, "a dict is made from at most one positional argument");
  }
  for (const Value& source : arguments.positional) {
    if (source.is(Kind::Dict)) {
      const auto entries = source.as<DictObject>().entries();
      runtime.meter.step(entries.size());
      for (const auto& [key, value] : entries) dict.set(key, value);
      continue;
    }
    for (const Value& pair : items_of(runtime, source)) {
      const std::vector<Value> parts = items_of(runtime, pair);
      if (parts.size() != 2) fail(Errc::BadInput, "a dict is made from pairs of key and value");
      dict.set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(runtime.string(name), value);
}

}  // namespace moeflux::jinja
