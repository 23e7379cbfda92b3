#include "text/jinja/operations.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "text/jinja/python_text.h"
#include "text/jinja/strings.h"

namespace moeflux::jinja {
namespace {

// ---- arithmetic

// By BinaryOp.
constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void overflow() {
  fail(Errc::LimitExceeded, "an integer of the template does not fit in 64 bits");
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) fail(Errc::BadInput, "integer division or modulo by zero");
  if (a == std::numeric_limits<std::int64_t>::min() && b == -1) overflow();
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t floor_modulo(std::int64_t a, std::int64_t b) {
  if (b == 0) fail(Errc::BadInput, "integer division or modulo by zero");
  if (b == -1) return 0;  // the machine's division would overflow for the smallest integer
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return result;
}

Value integer_operation(BinaryOp op, const Value& left, const Value& right) {
  const std::int64_t a = left.as_int();
  const std::int64_t b = right.as_int();
  const Origin origin = merged(left, right);
  std::int64_t result = 0;
  bool too_large = false;
  switch (op) {
    case BinaryOp::Add:
      too_large = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOp::Subtract:
      too_large = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOp::Multiply:
      too_large = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOp::Divide:
      if (b == 0) fail(Errc::BadInput, "division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b), origin);
    case BinaryOp::FloorDivide:
      result = floor_divide(a, b);
      break;
    case BinaryOp::Modulo:
      result = floor_modulo(a, b);
      break;
    case BinaryOp::Power:
      if (b < 0) {
        if (a == 0) fail(Errc::BadInput, "0 cannot be raised to a negative power");
        return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)), origin);
      }
      result = integer_power(a, b);
      break;
  }
  if (too_large) overflow();
  return Value::integer(result, origin);
}

double float_modulo(double a, double b) {
  if (b == 0) fail(Errc::BadInput, "float modulo by zero");
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest != 0 ? rest : std::copysign(0.0, b);
}

double float_floor_divide(double a, double b) {
  if (b == 0) fail(Errc::BadInput, "float floor division by zero");
  const double quotient = (a - float_modulo(a, b)) / b;  // an integer, but for rounding
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double below = std::floor(quotient);
  return quotient - below > 0.5 ? below + 1 : below;
}

double float_power(double a, double b) {
  if (a == 0 && b < 0) fail(Errc::BadInput, "0.0 cannot be raised to a negative power");
  const double result = std::pow(a, b);
  if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
    fail(Errc::Unsupported, "a power with a complex result");
  }
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    fail(Errc::BadInput, "the result of a power is too large for a float");
  }
  return result;
}

Value float_operation(BinaryOp op, const Value& left, const Value& right) {
  const double a = left.as_real();
  const double b = right.as_real();
  const Origin origin = merged(left, right);
  switch (op) {
    case BinaryOp::Add:
      return Value::real(a + b, origin);
    case BinaryOp::Subtract:
      return Value::real(a - b, origin);
    case BinaryOp::Multiply:
      return Value::real(a * b, origin);
    case BinaryOp::Divide:
      if (b == 0) fail(Errc::BadInput, "float division by zero");
      return Value::real(a / b, origin);
    case BinaryOp::FloorDivide:
      return Value::real(float_floor_divide(a, b), origin);
    case BinaryOp::Modulo:
      return Value::real(float_modulo(a, b), origin);
    case BinaryOp::Power:
      return Value::real(float_power(a, b), origin);
  }
  return {};
}

// The sum of a safe string and a plain one is safe, and the plain one is escaped for it.
Value add_strings(Runtime& runtime, const Value& left, const Value& right) {
  const bool safe = left.is_safe() || right.is_safe();
  TextBuilder sum(runtime);
  for (const Value* part : {&left, &right}) {
    if (safe && !part->is_safe()) {
      sum.append(html_escape(runtime, part->text()));
    } else {
      sum.append(part->text());
    }
  }
  return sum.value(safe);
}

Value add_sequences(Runtime& runtime, const Value& left, const Value& right) {
  const auto& a = left.as<SequenceObject>().items;
  const auto& b = right.as<SequenceObject>().items;
  std::vector<Value> items;
  items.reserve(a.size() + b.size());
  items.insert(items.end(), a.begin(), a.end());
  items.insert(items.end(), b.begin(), b.end());
  return runtime.sequence(left.kind(), std::move(items));
}

Value repeat(Runtime& runtime, const Value& what, std::int64_t times) {
  const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(times, 0));
  if (what.is_string()) {
    const MarkedString& text = what.text();
    if (text.empty()) return what;
    runtime.meter.check_string(count);
    runtime.meter.check_string(count * text.size());
    TextBuilder result(runtime);
    for (std::uint64_t i = 0; i < count; ++i) result.append(text);
    return result.value(what.is_safe());
  }
  const auto& source = what.as<SequenceObject>().items;
  std::vector<Value> items;
  if (!source.empty()) {
    runtime.meter.check_items(count, sizeof(Value));
    runtime.meter.check_items(count * source.size(), sizeof(Value));
  }
  for (std::uint64_t i = 0; i < count && !source.empty(); ++i) {
    runtime.meter.step(source.size());
    items.insert(items.end(), source.begin(), source.end());
  }
  return runtime.sequence(what.kind(), std::move(items));
}

[[noreturn]] void unsupported_operands(BinaryOp op, const Value& left, const Value& right) {
  if (op == BinaryOp::Add && (left.is_string() || left.is_sequence())) {
    fail(Errc::BadInput, "can only concatenate {} (not \"{}\") to {}", type_name(left),
         type_name(right), type_name(left));
  }
  fail(Errc::BadInput, "unsupported operand type(s) for {}: '{}' and '{}'",
       kSymbols[static_cast<std::size_t>(op)], type_name(left), type_name(right));
}

// ---- comparison

bool equal_items(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Value& x, const Value& y) { return equal(runtime, x, y); });
}

bool has_item(Runtime& runtime, const std::vector<Value>& items, const Value& item) {
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& other) { return equal(runtime, other, item); });
}

bool equal_dicts(Runtime& runtime, const DictObject& a, const DictObject& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(runtime, entry.second, *other);
  });
}

// The order of two values that Python can order, with `op` for the message when it cannot.
std::partial_ordering order(Runtime& runtime, const Value& left, const Value& right,
                            std::string_view op) {
  const DepthGuard guard(runtime.meter);
  runtime.meter.step();
  require_defined(left);
  require_defined(right);
  if (left.is_integral() && right.is_integral()) return left.as_int() <=> right.as_int();
  if (left.is_number() && right.is_number()) return left.as_real() <=> right.as_real();
  if (left.is_string() && right.is_string()) {
    runtime.meter.text(std::min(left.text().size(), right.text().size()));
    return left.view() <=> right.view();
  }
  if (left.is_sequence() && left.kind() == right.kind()) {
    const auto& a = left.as<SequenceObject>().items;
    const auto& b = right.as<SequenceObject>().items;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (!equal(runtime, a[i], b[i])) return order(runtime, a[i], b[i], op);
    }
    return a.size() <=> b.size();
  }
  fail(Errc::BadInput, "'{}' not supported between instances of '{}' and '{}'", op, type_name(left),
       type_name(right));
}

}  // namespace

void require_defined(const Value& value) {
  if (!value.is_undefined()) return;
  fail(Errc::BadInput, "{}", value.hint().empty() ? "a value is undefined" : value.hint());
}

Value binary(Runtime& runtime, BinaryOp op, const Value& left, const Value& right) {
  if (op == BinaryOp::Modulo && left.is_string()) return percent_format(runtime, left, right);
  require_defined(left);
  require_defined(right);
  if (left.is_integral() && right.is_integral()) return integer_operation(op, left, right);
  if (left.is_number() && right.is_number()) return float_operation(op, left, right);
  if (op == BinaryOp::Add) {
    if (left.is_string() && right.is_string()) return add_strings(runtime, left, right);
    if (left.is_sequence() && left.kind() == right.kind()) {
      return add_sequences(runtime, left, right);
    }
  }
  if (op == BinaryOp::Multiply) {
    const auto repeatable = [](const Value& v) { return v.is_string() || v.is_sequence(); };
    if (repeatable(left) && right.is_integral()) return repeat(runtime, left, right.as_int());
    if (repeatable(right) && left.is_integral()) return repeat(runtime, right, left.as_int());
  }
  unsupported_operands(op, left, right);
}

Value negate(const Value& operand) {
  require_defined(operand);
  if (operand.is_integral()) {
    if (operand.as_int() == std::numeric_limits<std::int64_t>::min()) overflow();
    return Value::integer(-operand.as_int(), operand.origin());
  }
  if (operand.is(Kind::Float)) return Value::real(-operand.as_real(), operand.origin());
  fail(Errc::BadInput, "bad operand type for unary -: '{}'", type_name(operand));
}

Value plus(const Value& operand) {
  require_defined(operand);
  if (operand.is_integral()) return Value::integer(operand.as_int(), operand.origin());
  if (operand.is(Kind::Float)) return operand;
  fail(Errc::BadInput, "bad operand type for unary +: '{}'", type_name(operand));
}

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
  return std::is_lt(order(runtime, left, right, "<"));
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
      return std::is_gt(order(runtime, left, right, ">"));
    case CompareOp::LessEqual:
      return std::is_lteq(order(runtime, left, right, "<="));
    case CompareOp::GreaterEqual:
      return std::is_gteq(order(runtime, left, right, ">="));
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
    case Kind::Tuple:
      return has_item(runtime, container.as<SequenceObject>().items, item);
    default:
      if (!is_iterable(container)) {
        fail(Errc::BadInput, "argument of type '{}' is not iterable", type_name(container));
      }
      return has_item(runtime, items_of(runtime, container), item);
  }
}

std::vector<Value> sorted(Runtime& runtime, const std::vector<Value>& items,
                          const std::vector<Value>& keys, bool reverse) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return reverse ? less(runtime, keys[b], keys[a]) : less(runtime, keys[a], keys[b]);
  });
  std::vector<Value> result;
  result.reserve(items.size());
  for (const std::size_t index : order) result.push_back(items[index]);
  return result;
}

}  // namespace moeflux::jinja
