#include <array>
#include <unordered_map>

#include "base/error.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"

namespace moeflux::jinja {
namespace {

// A test without arguments that only looks at the value.
template <bool (*kIs)(const Value&)>
bool simple(Runtime&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("test", arguments, {});
  return kIs(input);
}

template <CompareOp kOp>
bool comparison(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("test", arguments, {"other"}, 1);
  return compare(runtime, kOp, input, bound[0]);
}

bool is_defined(const Value& v) {
  return !v.is_undefined();
}
bool is_undefined(const Value& v) {
  return v.is_undefined();
}
bool is_none(const Value& v) {
  return v.is_none();
}
bool is_boolean(const Value& v) {
  return v.is(Kind::Bool);
}
bool is_true(const Value& v) {
  return v.is(Kind::Bool) && v.as_bool();
}
bool is_false(const Value& v) {
  return v.is(Kind::Bool) && !v.as_bool();
}
bool is_integer(const Value& v) {
  return v.is(Kind::Int);
}
bool is_float(const Value& v) {
  return v.is(Kind::Float);
}
bool is_number(const Value& v) {
  return v.is_number();
}
bool is_string(const Value& v) {
  return v.is_string();
}
bool is_mapping(const Value& v) {
  return v.is(Kind::Dict);
}
bool is_iterable_value(const Value& v) {
  return is_iterable(v);
}
bool is_escaped(const Value& v) {
  return v.is_safe();
}
bool is_callable(const Value& v) {
  // Python's callable() holds for anything with __call__, which undefined values have.
  return v.is(Kind::Function) || v.is(Kind::Loop) || v.is_undefined();
}
bool is_sequence(const Value& v) {
  return v.is_sequence() || v.is_string() || v.is(Kind::Dict) || v.is(Kind::Range) ||
         v.is_undefined();
}

bool remainder_is(Runtime& runtime, const Value& input, const Value& divisor, std::int64_t wanted) {
  const Value rest = binary(runtime, BinaryOp::Modulo, input, divisor);
  return equal(runtime, rest, Value::integer(wanted));
}

bool odd_test(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("odd", arguments, {});
  return remainder_is(runtime, input, Value::integer(2), 1);
}

bool even_test(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("even", arguments, {});
  return remainder_is(runtime, input, Value::integer(2), 0);
}

bool divisibleby_test(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("divisibleby", arguments, {"num"}, 1);
  return remainder_is(runtime, input, bound[0], 0);
}

template <bool kUpper>
bool case_test(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("test", arguments, {});
  const Value text = runtime.string(to_text(runtime, input));
  const MethodEntry* method = find_method(Kind::String, kUpper ? "isupper" : "islower");
  const Arguments none;  // g++ 14 with precompiled headers refuses {} as an argument here
  return truthy(method->body(runtime, text, none));
}

bool sameas_test(Runtime&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("sameas", arguments, {"other"}, 1);
  return input.same_as(bound[0]);
}

bool filter_test(Runtime&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("filter", arguments, {});
  return input.is_string() && find_filter(input.view()) != nullptr;
}

bool test_test(Runtime&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("test", arguments, {});
  return input.is_string() && find_test(input.view()) != nullptr;
}

constexpr std::array<TestEntry, 39> kTests = {{
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined>},
    {"none", simple<is_none>},
    {"boolean", simple<is_boolean>},
    {"true", simple<is_true>},
    {"false", simple<is_false>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"number", simple<is_number>},
    {"string", simple<is_string>},
    {"mapping", simple<is_mapping>},
    {"sequence", simple<is_sequence>},
    {"iterable", simple<is_iterable_value>},
    {"callable", simple<is_callable>},
    {"escaped", simple<is_escaped>},
    {"odd", odd_test},
    {"even", even_test},
    {"divisibleby", divisibleby_test},
    {"lower", case_test<false>},
    {"upper", case_test<true>},
    {"sameas", sameas_test},
    {"filter", filter_test},
    {"test", test_test},
    {"in", comparison<CompareOp::In>},
    {"eq", comparison<CompareOp::Equal>},
    {"equalto", comparison<CompareOp::Equal>},
    {"==", comparison<CompareOp::Equal>},
    {"ne", comparison<CompareOp::NotEqual>},
    {"!=", comparison<CompareOp::NotEqual>},
    {"lt", comparison<CompareOp::Less>},
    {"lessthan", comparison<CompareOp::Less>},
    {"<", comparison<CompareOp::Less>},
    {"le", comparison<CompareOp::LessEqual>},
    {"<=", comparison<CompareOp::LessEqual>},
    {"gt", comparison<CompareOp::Greater>},
    {"greaterthan", comparison<CompareOp::Greater>},
    {">", comparison<CompareOp::Greater>},
    {"ge", comparison<CompareOp::GreaterEqual>},
    {">=", comparison<CompareOp::GreaterEqual>},
}};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  static const auto kByName = [] {
    std::unordered_map<std::string_view, const TestEntry*> map;
    for (const TestEntry& test : kTests) map.emplace(test.name, &test);
    return map;
  }();
  const auto found = kByName.find(name);
  return found != kByName.end() ? found->second : nullptr;
}

}  // namespace moeflux::jinja
