#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/operations.h"
#include "text/jinja/sorting.h"

namespace moeflux::jinja {
namespace {

Value map_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  std::vector<Value> results;
  if (!truthy(input)) return runtime.iterator({});
  if (arguments.positional.empty()) {
    const BoundArguments bound("map", arguments, {"attribute", "default"});
    if (!bound.has(0)) fail(Errc::BadInput, "map requires a filter argument");
    for (const Value& item : items_of(runtime, input)) {
      Value found = lookup_path(runtime, item, bound[0]);
      results.push_back(found.is_undefined() && bound.given(1) ? bound[1] : std::move(found));
    }
    return runtime.iterator(std::move(results));
  }
  const Value& name = arguments.positional.front();
  if (!name.is_string()) fail(Errc::BadInput, "map: the name of a filter must be a string");
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items_of(runtime, input)) {
    results.push_back(apply_filter(runtime, name.view(), item, rest));
  }
  return runtime.iterator(std::move(results));
}

// select, reject, selectattr and rejectattr: by a test, or by truth when none is named.
template <bool kKeep, bool kByAttribute>
Value select_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!truthy(input)) return runtime.iterator({});
  Arguments rest = arguments;
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
    std::string_view rest = attribute.view();
    while (true) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      const Value part = runtime.string(rest.substr(0, comma));
      keys.push_back(key_of(runtime, item, part, case_sensitive));
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
  }
  return runtime.list(std::move(keys));
}

Value sort_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> items = items_of(runtime, input);
  std::vector<Value> keys;
  for (const Value& item : items) {
    keys.push_back(sort_key(runtime, item, bound.value_or(2, Value::none()), bound.flag(1, false)));
  }
  return runtime.list(sorted(runtime, items, keys, bound.flag(0, false)));
}

Value unique_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("unique", arguments, {"case_sensitive", "attribute"});
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
Value extreme_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(kLargest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
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

Value sum_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("sum", arguments, {"attribute", "start"});
  Value total = bound.value_or(1, Value::integer(0));
  if (total.is_string()) fail(Errc::BadInput, "sum() can't sum strings");
  for (const Value& item : items_of(runtime, input)) {
    const Value part = bound.given(0) ? lookup_path(runtime, item, bound[0]) : item;
    total = binary(runtime, BinaryOp::Add, total, part);
  }
  return total;
}

Value groupby_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const auto value_of = [&](const Value& item) {
    Value value = lookup_path(runtime, item, bound[0]);
    return value.is_undefined() && bound.given(1) ? bound[1] : value;
  };
  const auto group_key = [&](const Value& item) {
    return bound.flag(2, false) ? value_of(item) : without_case(runtime, value_of(item));
  };
  const std::vector<Value> items = items_of(runtime, input);
  std::vector<Value> keys;
  for (const Value& item : items) keys.push_back(group_key(item));
  const std::vector<Value> ordered = sorted(runtime, items, keys, false);
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < ordered.size();) {
    const Value key = group_key(ordered[begin]);
    std::vector<Value> members;
    std::size_t end = begin;
    while (end < ordered.size() && equal(runtime, group_key(ordered[end]), key)) {
      members.push_back(ordered[end++]);
    }
    if (end == begin) ++end;  // a key that is not equal to itself
    const Value group = runtime.tuple({value_of(ordered[begin]), runtime.list(std::move(members))});
    group.as<SequenceObject>().is_group = true;
    groups.push_back(group);
    begin = end;
  }
  return runtime.list(std::move(groups));
}

constexpr std::array<FilterEntry, 11> kSelectionFilters = {{
    {"map", map_filter},
    {"select", select_filter<true, false>},
    {"reject", select_filter<false, false>},
    {"selectattr", select_filter<true, true>},
    {"rejectattr", select_filter<false, true>},
    {"sort", sort_filter},
    {"unique", unique_filter},
    {"min", extreme_filter<false>},
    {"max", extreme_filter<true>},
    {"sum", sum_filter},
    {"groupby", groupby_filter},
}};

}  // namespace

std::span<const FilterEntry> selection_filters() {
  return kSelectionFilters;
}

}  // namespace moeflux::jinja
