#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/sorting.h"
#include "text/jinja/unicode.h"

namespace moeflux::jinja {
namespace {

Value length_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("length", arguments, {});
  return Value::integer(static_cast<std::int64_t>(length_of(runtime, input)));
}

Value default_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("default", arguments, {"default_value", "boolean"});
  const bool replaced = input.is_undefined() || (bound.flag(1, false) && !truthy(input));
  return replaced ? bound.value_or(0, runtime.string("")) : input;
}

Value list_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("list", arguments, {});
  return runtime.list(items_of(runtime, input));
}

Value items_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("items", arguments, {});
  std::vector<Value> pairs;
  if (!input.is_undefined()) {
    if (!input.is(Kind::Dict)) fail(Errc::BadInput, "Can only get item pairs from a mapping.");
    for (const auto& [key, value] : input.as<DictObject>().entries()) {
      pairs.push_back(runtime.tuple({key, value}));
    }
  }
  return runtime.iterator(std::move(pairs));
}

Value first_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("first", arguments, {});
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

Value last_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("last", arguments, {});
  if (input.is(Kind::Iterator)) fail(Errc::BadInput, "'generator' object is not reversible");
  if (input.is_string() && !input.text().empty()) {
    return get_item(runtime, input, Value::integer(-1));
  }
  const std::vector<Value> items = items_of(runtime, input);
  if (!items.empty()) return items.back();
  return runtime.undefined("No last item, sequence was empty.");
}

Value join_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("join", arguments, {"d", "attribute"});
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

Value reverse_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("reverse", arguments, {});
  if (input.is_string()) {
    return get_slice(runtime, input, Value::none(), Value::none(), Value::integer(-1));
  }
  std::vector<Value> items = items_of(runtime, input);
  std::reverse(items.begin(), items.end());
  // What cannot be walked backwards is gathered first, and then it is a list.
  if (input.is(Kind::Iterator)) return runtime.list(std::move(items));
  return runtime.iterator(std::move(items));
}

Value attr_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("attr", arguments, {"name"}, 1);
  // Unlike a.b, the filter does not fall back to the key "b".
  const bool only_items =
      input.is(Kind::Dict) && find_method(Kind::Dict, bound.text(0).view()) == nullptr;
  if (!only_items) return get_attribute(runtime, input, bound.text(0).view());
  return runtime.undefined(
      fmt::format("'dict object' has no attribute {}", string_repr(bound.text(0).view())));
}

Value batch_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t size = bound.integer(0);
  if (bound.given(1) && size > 0) {
    runtime.meter.check_items(static_cast<std::uint64_t>(size), sizeof(Value));
  }
  std::vector<Value> lines;
  std::vector<Value> line;
  for (const Value& item : items_of(runtime, input)) {
    if (static_cast<std::int64_t>(line.size()) == size) {
      lines.push_back(runtime.list(std::exchange(line, {})));
    }
    line.push_back(item);
  }
  if (!line.empty()) {
    while (bound.given(1) && static_cast<std::int64_t>(line.size()) < size) {
      runtime.meter.step();
      line.push_back(bound[1]);
    }
    lines.push_back(runtime.list(std::move(line)));
  }
  return runtime.iterator(std::move(lines));
}

Value slice_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("slice", arguments, {"slices", "fill_with"}, 1);
  const std::vector<Value> items = items_of(runtime, input);
  if (bound.integer(0) <= 0) fail(Errc::BadInput, "slice: the number of slices must be positive");
  const auto slices = static_cast<std::uint64_t>(bound.integer(0));
  const std::uint64_t each = items.size() / slices;
  const std::uint64_t longer = items.size() % slices;
  std::vector<Value> result;
  auto at = items.begin();
  for (std::uint64_t i = 0; i < slices; ++i) {
    const auto end = at + static_cast<std::ptrdiff_t>(each + (i < longer ? 1 : 0));
    std::vector<Value> slice(at, end);
    if (bound.given(1) && i >= longer) slice.push_back(bound[1]);
    result.push_back(runtime.list(std::move(slice)));
    at = end;
  }
  return runtime.iterator(std::move(result));
}

Value dictsort_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
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

constexpr std::array<FilterEntry, 14> kSequenceFilters = {{
    {"length", length_filter},
    {"count", length_filter},
    {"default", default_filter},
    {"d", default_filter},
    {"list", list_filter},
    {"items", items_filter},
    {"first", first_filter},
    {"last", last_filter},
    {"join", join_filter},
    {"reverse", reverse_filter},
    {"attr", attr_filter},
    {"batch", batch_filter},
    {"slice", slice_filter},
    {"dictsort", dictsort_filter},
}};

}  // namespace

std::span<const FilterEntry> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace moeflux::jinja
