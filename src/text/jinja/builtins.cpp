#include "text/jinja/builtins.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"

namespace moeflux::jinja {
namespace {

// ---- tests

template <CompareOp kOp>
bool comparison(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  return compare(runtime, kOp, input, bound[0]);
}

bool remainder_is(Runtime& runtime, const Value& input, const Value& divisor, std::int64_t wanted) {
  const Value rest = binary(runtime, BinaryOp::Modulo, input, divisor);
  return equal(runtime, rest, Value::integer(wanted));
}

template <int kRest>
bool parity_test(Runtime& runtime, const Value& input, const BoundArguments&) {
  return remainder_is(runtime, input, Value::integer(2), kRest);
}

bool divisibleby_test(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  return remainder_is(runtime, input, bound[0], 0);
}

bool sameas_test(Runtime&, const Value& input, const BoundArguments& bound) {
  return input.same_as(bound[0]);
}

struct TestEntry {
  std::string_view name;
  bool (*is)(const Value& value);  // tests without arguments that only look at the value
  bool (*body)(Runtime& runtime, const Value& input, const BoundArguments& bound) = nullptr;
  Signature signature = {};
};

constexpr Signature kOther{.names = {"other"}, .required = 1};

constexpr TestEntry kTests[] = {
    {"defined", [](const Value& v) { return !v.is_undefined(); }},
    {"undefined", [](const Value& v) { return v.is_undefined(); }},
    {"none", [](const Value& v) { return v.is_none(); }},
    {"boolean", [](const Value& v) { return v.is(Kind::Bool); }},
    {"true", [](const Value& v) { return v.is(Kind::Bool) && v.as_bool(); }},
    {"false", [](const Value& v) { return v.is(Kind::Bool) && !v.as_bool(); }},
    {"integer", [](const Value& v) { return v.is(Kind::Int); }},
    {"float", [](const Value& v) { return v.is(Kind::Float); }},
    {"number", [](const Value& v) { return v.is_number(); }},
    {"string", [](const Value& v) { return v.is_string(); }},
    {"mapping", [](const Value& v) { return v.is(Kind::Dict); }},
    {"iterable", [](const Value& v) { return is_iterable(v); }},
    {"sequence",
     [](const Value& v) {
       return v.is_sequence() || v.is_string() || v.is(Kind::Dict) || v.is(Kind::Range) ||
              v.is_undefined();
     }},
    // Python's callable() holds for anything with __call__, which undefined values have.
    {"callable",
     [](const Value& v) { return v.is(Kind::Function) || v.is(Kind::Loop) || v.is_undefined(); }},
    {"odd", nullptr, parity_test<1>},
    {"even", nullptr, parity_test<0>},
    {"divisibleby", nullptr, divisibleby_test, {{"num"}, 1}},
    {"sameas", nullptr, sameas_test, kOther},
    {"in", nullptr, comparison<CompareOp::In>, kOther},
    {"eq", nullptr, comparison<CompareOp::Equal>, kOther},
    {"equalto", nullptr, comparison<CompareOp::Equal>, kOther},
    {"==", nullptr, comparison<CompareOp::Equal>, kOther},
    {"ne", nullptr, comparison<CompareOp::NotEqual>, kOther},
    {"!=", nullptr, comparison<CompareOp::NotEqual>, kOther},
    {"lt", nullptr, comparison<CompareOp::Less>, kOther},
    {"lessthan", nullptr, comparison<CompareOp::Less>, kOther},
    {"<", nullptr, comparison<CompareOp::Less>, kOther},
    {"le", nullptr, comparison<CompareOp::LessEqual>, kOther},
    {"<=", nullptr, comparison<CompareOp::LessEqual>, kOther},
    {"gt", nullptr, comparison<CompareOp::Greater>, kOther},
    {"greaterthan", nullptr, comparison<CompareOp::Greater>, kOther},
    {">", nullptr, comparison<CompareOp::Greater>, kOther},
    {"ge", nullptr, comparison<CompareOp::GreaterEqual>, kOther},
    {">=", nullptr, comparison<CompareOp::GreaterEqual>, kOther},
};

// ---- global functions

constexpr std::uint64_t kMaxRange = 100'000;  // the same as in Python's sandbox
constexpr std::size_t kMaxTimeFormat = 1000;
constexpr std::size_t kMaxMessage = 4000;

Value range_global(Runtime& runtime, const BoundArguments& bound) {
  const std::int64_t start = bound.has(1) ? bound.integer(0) : 0;
  const std::int64_t stop = bound.integer(bound.has(1) ? 1 : 0);
  const std::int64_t step = bound.integer_or(2, 1);
  if (step == 0) fail(Errc::BadInput, "range() arg 3 must not be zero");
  const auto range = runtime.heap.make<RangeObject>(start, stop, step);
  if (range->size() > kMaxRange) {
    fail(Errc::LimitExceeded, "range() of more than {} numbers", kMaxRange);
  }
  return Value::object(Kind::Range, range);
}

Value dict_global(Runtime& runtime, const BoundArguments& bound) {
  const Ref<DictObject> dict = runtime.new_dict();
  update_dict(runtime, *dict, bound.all());
  return Value::object(Kind::Dict, dict);
}

Value namespace_global(Runtime& runtime, const BoundArguments& bound) {
  const auto object = runtime.heap.make<NamespaceObject>(runtime.meter);
  update_dict(runtime, *object->attributes, bound.all());
  return Value::object(Kind::Namespace, object);
}

Value raise_exception_global(Runtime& runtime, const BoundArguments& bound) {
  fail(Errc::BadInput, "{}", to_text(runtime, bound[0]).view().substr(0, kMaxMessage));
}

Value strftime_now_global(Runtime& runtime, const BoundArguments& bound) {
  std::string format = bound.text(0).bytes();
  if (format.empty()) return runtime.string("");
  if (format.size() > kMaxTimeFormat) fail(Errc::LimitExceeded, "the format of a date is too long");
  // Python's %f, which C does not have.
  for (std::size_t at = format.find("%f"); at != std::string::npos; at = format.find("%f", at)) {
    format.replace(at, 2, "000000");
  }
  std::tm now{};
  if (runtime.options().local_time) {
    now = *runtime.options().local_time;
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &now);
  }
  format += ' ';  // an empty result could not be told from a failure
  std::string text(64 * kMaxTimeFormat, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &now));
  if (text.empty()) fail(Errc::BadInput, "the format of a date is not usable");
  text.pop_back();
  return runtime.string(text);
}

struct GlobalEntry {
  std::string_view name;
  Value (*body)(Runtime& runtime, const BoundArguments& bound);
  Signature signature;
};

constexpr GlobalEntry kGlobals[] = {
    {"range", range_global, {{"start", "stop", "step"}, 1}},
    {"dict", dict_global, kAnyArguments},
    {"namespace", namespace_global, kAnyArguments},
    {"raise_exception", raise_exception_global, {{"message"}, 1}},
    {"strftime_now", strftime_now_global, {{"format"}, 1}},
};

}  // namespace

std::size_t Signature::size() const {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), "") - names.begin());
}

BoundArguments::BoundArguments(std::string_view function, const Signature& signature,
                               const Arguments& arguments)
    : function_(function), signature_(signature), arguments_(arguments) {
  if (signature.is_any) return;
  const std::size_t n_names = signature.size();
  if (arguments.positional.size() > n_names) {
    fail(Errc::BadInput, "{}() takes at most {} arguments, but {} are given", function, n_names,
         arguments.positional.size());
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto& names = signature.names;
    const auto* const place = std::find(names.begin(), names.begin() + n_names, name);
    if (place == names.begin() + n_names) {
      fail(Errc::BadInput, "{}() got an unexpected keyword argument '{}'", function, name);
    }
    const Value*& slot = values_[static_cast<std::size_t>(place - names.begin())];
    if (slot != nullptr) {
      fail(Errc::BadInput, "{}() got multiple values for argument '{}'", function, name);
    }
    slot = &value;
  }
  for (std::size_t i = 0; i < signature.required; ++i) {
    if (values_[i] == nullptr) {
      fail(Errc::BadInput, "{}() is missing its argument '{}'", function, signature.names[i]);
    }
  }
}

std::int64_t BoundArguments::integer(std::size_t index) const {
  require_defined(*values_[index]);
  if (!values_[index]->is_integral()) wrong_type(index, "an integer");
  return values_[index]->as_int();
}

const MarkedString& BoundArguments::text(std::size_t index) const {
  require_defined(*values_[index]);
  if (!values_[index]->is_string()) wrong_type(index, "a string");
  return values_[index]->text();
}

void BoundArguments::wrong_type(std::size_t index, std::string_view wanted) const {
  fail(Errc::BadInput, "{}(): the argument '{}' must be {}, not {}", function_,
       signature_.names[index], wanted, type_name(*values_[index]));
}

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                   const Arguments& arguments) {
  const Builtin* filter = find_builtin(scalar_filters(), name);
  if (filter == nullptr) filter = find_builtin(sequence_filters(), name);
  if (filter == nullptr) fail(Errc::Unsupported, "there is no filter named '{}'", name);
  return filter->call(runtime, input, arguments);
}

bool apply_test(Runtime& runtime, std::string_view name, const Value& input,
                const Arguments& arguments) {
  const TestEntry* test = find_builtin(kTests, name);
  if (test == nullptr) fail(Errc::Unsupported, "there is no test named '{}'", name);
  const BoundArguments bound(name, test->signature, arguments);
  return test->is != nullptr ? test->is(input) : test->body(runtime, input, bound);
}

Value find_global(Runtime& runtime, std::string_view name) {
  const GlobalEntry* global = find_builtin(kGlobals, name);
  if (global == nullptr) return {};
  return runtime.function(std::string(name), [&runtime, global](Arguments& arguments) {
    return global->body(runtime, {global->name, global->signature, arguments});
  });
}

}  // namespace moeflux::jinja
