// Methods of lists, dicts and the loop variable, and the way to find those of any value.
#include <algorithm>

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

Value list_append(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  runtime.meter.step();
  list_of(self).items.push_back(bound[0]);
  list_of(self).recharge();
  return Value::none();
}

Value list_extend(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  const std::vector<Value> more = items_of(runtime, bound[0]);
  auto& items = list_of(self).items;
  items.insert(items.end(), more.begin(), more.end());
  list_of(self).recharge();
  return Value::none();
}

Value list_insert(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  auto& items = list_of(self).items;
  const auto size = static_cast<std::int64_t>(items.size());
  std::int64_t at = bound.integer(0);
  if (at < 0) at += size;
  runtime.meter.step(1 + items.size() / 8);
  items.insert(items.begin() + std::clamp<std::int64_t>(at, 0, size), bound[1]);
  list_of(self).recharge();
  return Value::none();
}

Value list_pop(Runtime& runtime, const Value& self, const BoundArguments& bound) {
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

Value list_remove(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  auto& items = list_of(self).items;
  const auto found = find_item(runtime, items, bound[0]);
  if (found == items.end()) fail(Errc::BadInput, "list.remove(x): x not in list");
  items.erase(found);
  return Value::none();
}

Value list_index(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  auto& items = list_of(self).items;
  const auto found = find_item(runtime, items, bound[0]);
  if (found == items.end()) {
    fail(Errc::BadInput, "{} is not in list", to_repr(runtime, bound[0]).view().substr(0, 100));
  }
  return Value::integer(found - items.begin());
}

Value list_count(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  const auto& items = list_of(self).items;
  return Value::integer(std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return equal(runtime, item, bound[0]);
  }));
}

Value list_reverse(Runtime& runtime, const Value& self, const BoundArguments&) {
  runtime.meter.step(list_of(self).items.size());
  std::reverse(list_of(self).items.begin(), list_of(self).items.end());
  return Value::none();
}

Value list_copy(Runtime& runtime, const Value& self, const BoundArguments&) {
  return runtime.list(list_of(self).items);
}

Value dict_get(Runtime&, const Value& self, const BoundArguments& bound) {
  const Value* found = dict_of(self).find(bound[0]);
  return found != nullptr ? *found : bound.value_or(1, Value::none());
}

template <ViewObject::What kWhat>
Value dict_view(Runtime& runtime, const Value& self, const BoundArguments&) {
  return Value::object(Kind::View,
                       runtime.heap.make<ViewObject>(Ref<DictObject>(&dict_of(self)), kWhat));
}

Value dict_pop(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  const Value* found = dict_of(self).find(bound[0]);
  if (found == nullptr) {
    if (bound.has(1)) return bound[1];
    fail(Errc::BadInput, "the dict has no key {}", to_repr(runtime, bound[0]).view());
  }
  Value value = *found;
  dict_of(self).erase(bound[0]);
  return value;
}

Value dict_setdefault(Runtime&, const Value& self, const BoundArguments& bound) {
  if (const Value* found = dict_of(self).find(bound[0])) return *found;
  Value value = bound.value_or(1, Value::none());
  dict_of(self).set(bound[0], value);
  return value;
}

Value dict_update(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  update_dict(runtime, dict_of(self), bound.all());
  return Value::none();
}

Value dict_copy(Runtime& runtime, const Value& self, const BoundArguments&) {
  const Ref<DictObject> copy = runtime.new_dict();
  for (const auto& [key, value] : dict_of(self).entries()) copy->set(key, value);
  return Value::object(Kind::Dict, copy);
}

constexpr Builtin kListMethods[] = {
    {"append", list_append, {{"object"}, 1}, true},
    {"extend", list_extend, {{"iterable"}, 1}, true},
    {"insert", list_insert, {{"index", "object"}, 2}, true},
    {"pop", list_pop, {{"index"}}, true},
    {"remove", list_remove, {{"value"}, 1}, true},
    {"index", list_index, {{"value"}, 1}},
    {"count", list_count, {{"value"}, 1}},
    {"reverse", list_reverse, {}, true},
    {"copy", list_copy},
};

constexpr Builtin kDictMethods[] = {
    {"get", dict_get, {{"key", "default"}, 1}},
    {"items", dict_view<ViewObject::What::Items>},
    {"keys", dict_view<ViewObject::What::Keys>},
    {"values", dict_view<ViewObject::What::Values>},
    {"pop", dict_pop, {{"key", "default"}, 1}, true},
    {"setdefault", dict_setdefault, {{"key", "default"}, 1}, true},
    {"update", dict_update, kAnyArguments, true},
    {"copy", dict_copy},
};

Value loop_cycle(Runtime&, const Value& self, const BoundArguments& bound) {
  const auto& items = bound.all().positional;
  if (items.empty()) fail(Errc::BadInput, "no items for cycling given");
  return items[static_cast<std::size_t>(self.as<LoopObject>().index0) % items.size()];
}

Value loop_changed(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  auto& last = self.as<LoopObject>().last_changed;
  const auto& now = bound.all().positional;
  const bool same =
      last && std::equal(last->begin(), last->end(), now.begin(), now.end(),
                         [&](const Value& a, const Value& b) { return equal(runtime, a, b); });
  if (!same) last = now;
  return Value::boolean(!same);
}

constexpr Builtin kLoopMethods[] = {
    {"changed", loop_changed, kAnyArguments},
    {"cycle", loop_cycle, kAnyArguments},
};

}  // namespace

const Builtin* find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::String:
      return find_builtin(string_methods(), name);
    case Kind::List:
      return find_builtin(kListMethods, name);
    case Kind::Dict:
      return find_builtin(kDictMethods, name);
    case Kind::Loop:
      return find_builtin(kLoopMethods, name);
    default:
      return nullptr;
  }
}

bool may_call(const Builtin& method, const Value& self) {
  if (!method.forbidden_on_input) return true;
  return self.is(Kind::List) ? !self.as<SequenceObject>().is_input
                             : !self.as<DictObject>().is_input;
}

}  // namespace moeflux::jinja
