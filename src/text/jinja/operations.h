// Operators of the language with Python's meaning: arithmetic, comparison, membership, iteration.
// What Python answers with a TypeError, ValueError or UndefinedError throws BadInput here.
#pragma once

#include <cstddef>
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

}  // namespace moeflux::jinja
