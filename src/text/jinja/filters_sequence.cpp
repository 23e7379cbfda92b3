// Filters of lists and dicts.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/strings.h"

namespace moeflux::jinja {
namespace {

// Looks up "a.b.0" in a value, as filters with an `attribute` do.
Value lookup_path(Runtime& runtime, Value value, const Value& path) {
  if (path.is_none()) return value;
  if (!path.is_string()) return get_item(runtime, value, path);
  for (const std::string& part : split(path.view(), '.')) {
    const auto index = to_number<std::int64_t>(part);
    const bool is_index = index && part.front() != '-';
    value = get_item(runtime, value, is_index ? Value::integer(*index) : runtime.string(part));
  }
  return value;
}

// Strings in lower case, anything else as it is: the key by which filters ignore case.
Value without_case(Runtime& runtime, const Value& value) {
  if (!value.is_string()) return value;
  return runtime.string(change_case(runtime, value.text(), Case::Lower));
}

Value length_filter(Runtime& runtime, const Value& input, const BoundArguments&) {
  return Value::integer(static_cast<std::int64_t>(length_of(runtime, input)));
}

Value default_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  const bool replaced = input.is_undefined() || (bound.flag(1, false) && !truthy(input));
  return replaced ? bound.value_or(0, runtime.string("")) : input;
}

Value list_filter(Runtime& runtime, const Value& input, const BoundArguments&) {
  return runtime.list(items_of(runtime, input));
}

Value items_filter(Runtime& runtime, const Value& input, const BoundArguments&) {
  std::vector<Value> pairs;
  if (!input.is_undefined()) {
    if (!input.is(Kind::Dict)) fail(Errc::BadInput, "Can only get item pairs from a mapping.");
    for (const auto& [key, value] : input.as<DictObject>().entries()) {
      pairs.push_back(runtime.tuple({key, value}));
    }
  }
  return runtime.iterator(std::move(pairs));
}

Value first_filter(Runtime& runtime, const Value& input, const BoundArguments&) {
  if (input.is(Kind::Iterator)) {
    auto& iterator = input.as<IteratorObject>();
    if (iterator.position < iterator.items.size()) return iterator.items[iterator.position++];
  } else if (input.is_string() && !input.text().empty()) {
    return get_item(runtime, input, Value::integer(0));
  } else {
    const std::vector<Value> items = items_of(runtime, input);
    if (!items.empty()) return items.front();
  }
  return runtime.undefined("No first item, sequence was empty.");
}

Value last_filter(Runtime& runtime, const Value& input, const BoundArguments&) {
  if (input.is(Kind::Iterator)) fail(Errc::BadInput, "'generator' object is not reversible");
  if (input.is_string() && !input.text().empty()) {
    return get_item(runtime, input, Value::integer(-1));
  }
  const std::vector<Value> items = items_of(runtime, input);
  if (!items.empty()) return items.back();
  return runtime.undefined("No last item, sequence was empty.");
}

Value join_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  const MarkedString separator = bound.has(0) ? to_text(runtime, bound[0]) : MarkedString();
  TextBuilder out(runtime);
  bool first = true;
  for (const Value& item : items_of(runtime, input)) {
    if (!first) out.append(separator);
    first = false;
    out.append(to_text(runtime, bound.given(1) ? lookup_path(runtime, item, bound[1]) : item));
  }
  return out.value();
}

Value reverse_filter(Runtime& runtime, const Value& input, const BoundArguments&) {
  if (input.is_string()) {
    return get_slice(runtime, input, Value::none(), Value::none(), Value::integer(-1));
  }
  std::vector<Value> items = items_of(runtime, input);
  std::reverse(items.begin(), items.end());
  // What cannot be walked backwards is gathered first, and then it is a list.
  if (input.is(Kind::Iterator)) return runtime.list(std::move(items));
  return runtime.iterator(std::move(items));
}

Value dictsort_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  require_defined(input);
  if (!input.is(Kind::Dict)) fail(Errc::BadInput, "dictsort: expected a dict");
  const std::string by = bound.has(1) ? bound.text(1).bytes() : "key";
  if (by != "key" && by != "value") {
    fail(Errc::BadInput, "You can only sort by either \"key\" or \"value\"");
  }
  std::vector<Value> pairs;
  std::vector<Value> keys;
  for (const auto& [key, value] : input.as<DictObject>().entries()) {
    const Value& wanted = by == "key" ? key : value;
    pairs.push_back(runtime.tuple({key, value}));
    keys.push_back(bound.flag(0, false) ? wanted : without_case(runtime, wanted));
  }
  return runtime.list(sorted(runtime, pairs, keys, bound.flag(2, false)));
}

// ---- selecting and sorting

Value map_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  std::vector<Value> results;
  if (!truthy(input)) return runtime.iterator({});
  if (bound.all().positional.empty()) {
    static constexpr Signature kNamed{.names = {"attribute", "default"}};
    const BoundArguments named("map", kNamed, bound.all());
    if (!named.has(0)) fail(Errc::BadInput, "map requires a filter argument");
    for (const Value& item : items_of(runtime, input)) {
      Value found = lookup_path(runtime, item, named[0]);
      results.push_back(found.is_undefined() && named.given(1) ? named[1] : std::move(found));
    }
    return runtime.iterator(std::move(results));
  }
  const Value& name = bound.all().positional.front();
  if (!name.is_string()) fail(Errc::BadInput, "map: the name of a filter must be a string");
  Arguments rest = bound.all();
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items_of(runtime, input)) {
    results.push_back(apply_filter(runtime, name.view(), item, rest));
  }
  return runtime.iterator(std::move(results));
}

// select, reject, selectattr and rejectattr: by a test, or by truth when none is named.
template <bool kKeep, bool kByAttribute>
Value select_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  if (!truthy(input)) return runtime.iterator({});
  Arguments rest = bound.all();
  const auto take_first = [&rest] {
    const Value first = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  Value attribute = Value::none();
  if (kByAttribute) {
    if (rest.positional.empty()) fail(Errc::BadInput, "Missing parameter for attribute name");
    attribute = take_first();
  }
  std::optional<Value> test;
  if (!rest.positional.empty()) {
    test = take_first();
    if (!test->is_string()) fail(Errc::BadInput, "the name of a test must be a string");
  }
  std::vector<Value> kept;
  for (const Value& item : items_of(runtime, input)) {
    const Value tested = kByAttribute ? lookup_path(runtime, item, attribute) : item;
    const bool passes = test ? apply_test(runtime, test->view(), tested, rest) : truthy(tested);
    if (passes == kKeep) kept.push_back(item);
  }
  return runtime.iterator(std::move(kept));
}

Value key_of(Runtime& runtime, const Value& item, const Value& attribute, bool case_sensitive) {
  const Value value = lookup_path(runtime, item, attribute);
  return case_sensitive ? value : without_case(runtime, value);
}

// "a,b" sorts by several attributes.
Value sort_key(Runtime& runtime, const Value& item, const Value& attribute, bool case_sensitive) {
  std::vector<Value> keys;
  if (!attribute.is_string()) {
    keys.push_back(key_of(runtime, item, attribute, case_sensitive));
  } else {
    for (const std::string& part : split(attribute.view(), ','))
      keys.push_back(key_of(runtime, item, runtime.string(part), case_sensitive));
  }
  return runtime.list(std::move(keys));
}

Value sort_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  const std::vector<Value> items = items_of(runtime, input);
  std::vector<Value> keys;
  for (const Value& item : items) {
    keys.push_back(sort_key(runtime, item, bound.value_or(2, Value::none()), bound.flag(1, false)));
  }
  return runtime.list(sorted(runtime, items, keys, bound.flag(0, false)));
}

Value unique_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  const Ref<DictObject> seen = runtime.new_dict();
  std::vector<Value> result;
  for (const Value& item : items_of(runtime, input)) {
    const Value key = key_of(runtime, item, bound.value_or(1, Value::none()), bound.flag(0, false));
    if (seen->find(key) != nullptr) continue;
    seen->set(key, Value::none());
    result.push_back(item);
  }
  return runtime.iterator(std::move(result));
}

template <bool kLargest>
Value extreme_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  std::optional<Value> best;
  Value best_key;
  for (const Value& item : items_of(runtime, input)) {
    Value key = key_of(runtime, item, bound.value_or(1, Value::none()), bound.flag(0, false));
    const bool better =
        !best || (kLargest ? less(runtime, best_key, key) : less(runtime, key, best_key));
    if (!better) continue;
    best = item;
    best_key = std::move(key);
  }
  return best ? *best : runtime.undefined("No aggregated item, sequence was empty.");
}

Value sum_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  Value total = bound.value_or(1, Value::integer(0));
  if (total.is_string()) fail(Errc::BadInput, "sum() can't sum strings");
  for (const Value& item : items_of(runtime, input)) {
    const Value part = bound.given(0) ? lookup_path(runtime, item, bound[0]) : item;
    total = binary(runtime, BinaryOp::Add, total, part);
  }
  return total;
}

constexpr Builtin kSequenceFilters[] = {
    {"length", length_filter},
    {"count", length_filter},
    {"default", default_filter, {{"default_value", "boolean"}}},
    {"d", default_filter, {{"default_value", "boolean"}}},
    {"list", list_filter},
    {"items", items_filter},
    {"first", first_filter},
    {"last", last_filter},
    {"join", join_filter, {{"d", "attribute"}}},
    {"reverse", reverse_filter},
    {"dictsort", dictsort_filter, {{"case_sensitive", "by", "reverse"}}},
    {"map", map_filter, kAnyArguments},
    {"select", select_filter<true, false>, kAnyArguments},
    {"reject", select_filter<false, false>, kAnyArguments},
    {"selectattr", select_filter<true, true>, kAnyArguments},
    {"rejectattr", select_filter<false, true>, kAnyArguments},
    {"sort", sort_filter, {{"reverse", "case_sensitive", "attribute"}}},
    {"unique", unique_filter, {{"case_sensitive", "attribute"}}},
    {"min", extreme_filter<false>, {{"case_sensitive", "attribute"}}},
    {"max", extreme_filter<true>, {{"case_sensitive", "attribute"}}},
    {"sum", sum_filter, {{"attribute", "start"}}},
};

}  // namespace

std::span<const Builtin> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace moeflux::jinja
