// Methods of lists, dicts and the loop variable, and the way to find those of any value.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"

namespace moeflux::jinja {
namespace {

SequenceObject& list_of(const Value& self) {
  return self.as<SequenceObject>();
}
DictObject& dict_of(const Value& self) {
  return self.as<DictObject>();
}

Value list_append(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("append", arguments, {"object"}, 1);
  runtime.meter.step();
  list_of(self).items.push_back(bound[0]);
  list_of(self).recharge();
  return Value::none();
}

Value list_extend(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("extend", arguments, {"iterable"}, 1);
  const std::vector<Value> more = items_of(runtime, bound[0]);
  auto& items = list_of(self).items;
  items.insert(items.end(), more.begin(), more.end());
  list_of(self).recharge();
  return Value::none();
}

Value list_insert(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("insert", arguments, {"index", "object"}, 2);
  auto& items = list_of(self).items;
  const auto size = static_cast<std::int64_t>(items.size());
  std::int64_t at = bound.integer(0);
  if (at < 0) at += size;
  runtime.meter.step(1 + items.size() / 8);
  items.insert(items.begin() + std::clamp<std::int64_t>(at, 0, size), bound[1]);
  list_of(self).recharge();
  return Value::none();
}

Value list_pop(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("pop", arguments, {"index"});
  auto& items = list_of(self).items;
  if (items.empty()) fail(Errc::BadInput, "pop from empty list");
  std::int64_t at = bound.integer_or(0, -1);
  if (at < 0) at += static_cast<std::int64_t>(items.size());
  if (at < 0 || at >= static_cast<std::int64_t>(items.size())) {
    fail(Errc::BadInput, "pop index out of range");
  }
  runtime.meter.step(1 + items.size() / 8);
  Value item = items[static_cast<std::size_t>(at)];
  items.erase(items.begin() + at);
  return item;
}

std::vector<Value>::iterator find_item(Runtime& runtime, std::vector<Value>& items,
                                       const Value& wanted) {
  return std::find_if(items.begin(), items.end(),
                      [&](const Value& item) { return equal(runtime, item, wanted); });
}

Value list_remove(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("remove", arguments, {"value"}, 1);
  auto& items = list_of(self).items;
  const auto found = find_item(runtime, items, bound[0]);
  if (found == items.end()) fail(Errc::BadInput, "list.remove(x): x not in list");
  items.erase(found);
  return Value::none();
}

Value list_index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("index", arguments, {"value"}, 1);
  auto& items = list_of(self).items;
  const auto found = find_item(runtime, items, bound[0]);
  if (found == items.end()) {
    fail(Errc::BadInput, "{} is not in list", to_repr(runtime, bound[0]).view().substr(0, 100));
  }
  return Value::integer(found - items.begin());
}

Value list_count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("count", arguments, {"value"}, 1);
  const auto& items = list_of(self).items;
  return Value::integer(std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return equal(runtime, item, bound[0]);
  }));
}

Value list_reverse(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("reverse", arguments, {});
  runtime.meter.step(list_of(self).items.size());
  std::reverse(list_of(self).items.begin(), list_of(self).items.end());
  return Value::none();
}

Value list_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("copy", arguments, {});
  return runtime.list(list_of(self).items);
}

Value dict_get(Runtime&, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("get", arguments, {"key", "default"}, 1);
  const Value* found = dict_of(self).find(bound[0]);
  return found != nullptr ? *found : bound.value_or(1, Value::none());
}

Value make_view(Runtime& runtime, const Value& self, ViewObject::What what) {
  return Value::object(Kind::View,
                       runtime.heap.make<ViewObject>(Ref<DictObject>(&dict_of(self)), what));
}

Value dict_items(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("items", arguments, {});
  return make_view(runtime, self, ViewObject::What::Items);
}

Value dict_keys(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("keys", arguments, {});
  return make_view(runtime, self, ViewObject::What::Keys);
}

Value dict_values(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("values", arguments, {});
  return make_view(runtime, self, ViewObject::What::Values);
}

Value dict_pop(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("pop", arguments, {"key", "default"}, 1);
  const Value* found = dict_of(self).find(bound[0]);
  if (found == nullptr) {
    if (bound.has(1)) return bound[1];
    fail(Errc::BadInput, "the dict has no key {}", to_repr(runtime, bound[0]).view());
  }
  Value value = *found;
  dict_of(self).erase(bound[0]);
  return value;
}

Value dict_setdefault(Runtime&, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("setdefault", arguments, {"key", "default"}, 1);
  if (const Value* found = dict_of(self).find(bound[0])) return *found;
  Value value = bound.value_or(1, Value::none());
  dict_of(self).set(bound[0], value);
  return value;
}

Value dict_update(Runtime& runtime, const Value& self, const Arguments& arguments) {
  update_dict(runtime, dict_of(self), arguments);
  return Value::none();
}

Value dict_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("copy", arguments, {});
  const Ref<DictObject> copy = runtime.new_dict();
  for (const auto& [key, value] : dict_of(self).entries()) copy->set(key, value);
  return Value::object(Kind::Dict, copy);
}

constexpr std::array<MethodEntry, 9> kListMethods = {{
    {"append", list_append, true},
    {"extend", list_extend, true},
    {"insert", list_insert, true},
    {"pop", list_pop, true},
    {"remove", list_remove, true},
    {"index", list_index},
    {"count", list_count},
    {"reverse", list_reverse, true},
    {"copy", list_copy},
}};

constexpr std::array<MethodEntry, 8> kDictMethods = {{
    {"get", dict_get},
    {"items", dict_items},
    {"keys", dict_keys},
    {"values", dict_values},
    {"pop", dict_pop, true},
    {"setdefault", dict_setdefault, true},
    {"update", dict_update, true},
    {"copy", dict_copy},
}};

Value loop_cycle(Runtime&, const Value& self, const Arguments& arguments) {
  const auto& items = arguments.positional;
  if (items.empty()) fail(Errc::BadInput, "no items for cycling given");
  return items[static_cast<std::size_t>(self.as<LoopObject>().index0) % items.size()];
}

Value loop_changed(Runtime& runtime, const Value& self, const Arguments& arguments) {
  auto& last = self.as<LoopObject>().last_changed;
  const auto& now = arguments.positional;
  const bool same =
      last && std::equal(last->begin(), last->end(), now.begin(), now.end(),
                         [&](const Value& a, const Value& b) { return equal(runtime, a, b); });
  if (!same) last = now;
  return Value::boolean(!same);
}

constexpr std::array<MethodEntry, 2> kLoopMethods = {{
    {"changed", loop_changed},
    {"cycle", loop_cycle},
}};

const MethodEntry* find_in(std::span<const MethodEntry> methods, std::string_view name) {
  const auto found = std::find_if(methods.begin(), methods.end(),
                                  [&](const MethodEntry& entry) { return entry.name == name; });
  return found != methods.end() ? &*found : nullptr;
}

}  // namespace

const MethodEntry* find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::String:
      return find_in(string_methods(), name);
    case Kind::List:
      return find_in(kListMethods, name);
    case Kind::Dict:
      return find_in(kDictMethods, name);
    case Kind::Loop:
      return find_in(kLoopMethods, name);
    default:
      return nullptr;
  }
}

bool may_call(const MethodEntry& method, const Value& self) {
  if (!method.forbidden_on_input) return true;
  return self.is(Kind::List) ? !self.as<SequenceObject>().is_input
                             : !self.as<DictObject>().is_input;
}

}  // namespace moeflux::jinja
