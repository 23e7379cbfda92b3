#include <algorithm>

#include "base/error.h"
#include "text/jinja/operations.h"
#include "text/jinja/string_tools.h"

namespace moeflux::jinja {
namespace {

enum class Order { Less, Equal, Greater, Unordered };

template <class T>
Order order_of(const T& a, const T& b) {
  if (a < b) return Order::Less;
  if (b < a) return Order::Greater;
  return a == b ? Order::Equal : Order::Unordered;
}

bool equal_items(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Value& x, const Value& y) { return equal(runtime, x, y); });
}

bool equal_dicts(Runtime& runtime, const DictObject& a, const DictObject& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(runtime, entry.second, *other);
  });
}

// The order of two values that Python can order, with `op` for the message when it cannot.
Order order(Runtime& runtime, const Value& left, const Value& right, std::string_view op) {
  const DepthGuard guard(runtime.meter);
  runtime.meter.step();
  require_defined(left);
  require_defined(right);
  if (left.is_integral() && right.is_integral()) return order_of(left.as_int(), right.as_int());
  if (left.is_number() && right.is_number()) return order_of(left.as_real(), right.as_real());
  if (left.is_string() && right.is_string()) {
    runtime.meter.text(std::min(left.text().size(), right.text().size()));
    return order_of(left.view(), right.view());
  }
  if (left.is_sequence() && left.kind() == right.kind()) {
    const auto& a = left.as<SequenceObject>().items;
    const auto& b = right.as<SequenceObject>().items;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (!equal(runtime, a[i], b[i])) return order(runtime, a[i], b[i], op);
    }
    return order_of(a.size(), b.size());
  }
  fail(Errc::BadInput, "'{}' not supported between instances of '{}' and '{}'", op, type_name(left),
       type_name(right));
}

void append_view(Runtime& runtime, const ViewObject& view, std::vector<Value>& items) {
  for (const auto& [key, value] : view.dict->entries()) {
    switch (view.what) {
      case ViewObject::What::Keys:
        items.push_back(key);
        break;
      case ViewObject::What::Values:
        items.push_back(value);
        break;
      case ViewObject::What::Items:
        items.push_back(runtime.tuple({key, value}));
        break;
    }
  }
}

}  // namespace

bool equal(Runtime& runtime, const Value& left, const Value& right) {
  const DepthGuard guard(runtime.meter);
  runtime.meter.step();
  if (left.is_integral() && right.is_integral()) return left.as_int() == right.as_int();
  if (left.is_number() && right.is_number()) return left.as_real() == right.as_real();
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::Undefined:
    case Kind::None:
      return true;
    case Kind::String:
      runtime.meter.text(std::min(left.text().size(), right.text().size()));
      return left.view() == right.view();
    case Kind::List:
    case Kind::Tuple:
      return equal_items(runtime, left.as<SequenceObject>().items,
                         right.as<SequenceObject>().items);
    case Kind::Dict:
      return equal_dicts(runtime, left.as<DictObject>(), right.as<DictObject>());
    case Kind::Range: {
      const auto& a = left.as<RangeObject>();
      const auto& b = right.as<RangeObject>();
      return a.size() == b.size() &&
             (a.size() == 0 || (a.start == b.start && (a.size() == 1 || a.step == b.step)));
    }
    default:
      return left.same_as(right);
  }
}

bool less(Runtime& runtime, const Value& left, const Value& right) {
  return order(runtime, left, right, "<") == Order::Less;
}

bool compare(Runtime& runtime, CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::Equal:
      return equal(runtime, left, right);
    case CompareOp::NotEqual:
      return !equal(runtime, left, right);
    case CompareOp::Less:
      return less(runtime, left, right);
    case CompareOp::Greater:
      return order(runtime, left, right, ">") == Order::Greater;
    case CompareOp::LessEqual: {
      const Order result = order(runtime, left, right, "<=");
      return result == Order::Less || result == Order::Equal;
    }
    case CompareOp::GreaterEqual: {
      const Order result = order(runtime, left, right, ">=");
      return result == Order::Greater || result == Order::Equal;
    }
    case CompareOp::In:
      return contains(runtime, right, left);
    case CompareOp::NotIn:
      return !contains(runtime, right, left);
  }
  return false;
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::String:
      if (!item.is_string()) {
        fail(Errc::BadInput, "'in <string>' requires string as left operand, not {}",
             type_name(item));
      }
      return find_text(runtime, container.view(), item.view()) != std::string_view::npos;
    case Kind::Dict:
      return container.as<DictObject>().find(item) != nullptr;
    case Kind::List:
    case Kind::Tuple: {
      const auto& items = container.as<SequenceObject>().items;
      return std::any_of(items.begin(), items.end(),
                         [&](const Value& other) { return equal(runtime, other, item); });
    }
    default: {
      if (!is_iterable(container)) {
        fail(Errc::BadInput, "argument of type '{}' is not iterable", type_name(container));
      }
      const std::vector<Value> items = items_of(runtime, container);
      return std::any_of(items.begin(), items.end(),
                         [&](const Value& other) { return equal(runtime, other, item); });
    }
  }
}

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

}  // namespace moeflux::jinja
