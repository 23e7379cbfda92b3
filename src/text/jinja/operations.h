// What the language does with values, with Python's meaning: operators, comparison, membership,
// iteration, sorting, and attributes, items and slices by the rules of Jinja's sandbox. What Python
// answers with a TypeError, ValueError or UndefinedError throws BadInput here.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace moeflux::jinja {

// Throws what Python's UndefinedError says when `value` is undefined.
void require_defined(const Value& value);

Value binary(Runtime& runtime, BinaryOp op, const Value& left, const Value& right);
Value negate(const Value& operand);
Value plus(const Value& operand);

bool equal(Runtime& runtime, const Value& left, const Value& right);
bool compare(Runtime& runtime, CompareOp op, const Value& left, const Value& right);
// left < right, as sorting needs it.
bool less(Runtime& runtime, const Value& left, const Value& right);
bool contains(Runtime& runtime, const Value& container, const Value& item);

bool is_iterable(const Value& value);
// list(value); an Iterator is used up by it.
std::vector<Value> items_of(Runtime& runtime, const Value& value);
// len(value)
std::size_t length_of(Runtime& runtime, const Value& value);

// Origin of a number computed from these two.
inline Origin merged(const Value& a, const Value& b) {
  return a.origin() == Origin::Data || b.origin() == Origin::Data ? Origin::Data : Origin::Markup;
}

// a.b looks for a method first and then for the key "b", a["b"] the other way round; what is not
// there is undefined.
Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);
Value get_item(Runtime& runtime, const Value& object, const Value& index);
// A bound that is not given is none.
Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step);

// sorted(items, key=keys): `keys[i]` is the key of `items[i]`.
std::vector<Value> sorted(Runtime& runtime, const std::vector<Value>& items,
                          const std::vector<Value>& keys, bool reverse);

// What dict.update() does with its arguments: a mapping or a list of pairs, then keywords.
void update_dict(Runtime& runtime, DictObject& dict, const Arguments& arguments);

}  // namespace moeflux::jinja
