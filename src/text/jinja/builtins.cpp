#include "text/jinja/builtins.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "base/error.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"

namespace moeflux::jinja {
namespace {

// ---- tests

template <CompareOp kOp>
bool comparison(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("test", arguments, {"other"}, 1);
  return compare(runtime, kOp, input, bound[0]);
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

bool sameas_test(Runtime&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("sameas", arguments, {"other"}, 1);
  return input.same_as(bound[0]);
}

struct TestEntry {
  std::string_view name;
  bool (*is)(const Value& value);  // tests without arguments that only look at the value
  bool (*body)(Runtime& runtime, const Value& input, const Arguments& arguments);
};

constexpr std::array<TestEntry, 34> kTests = {{
    {"defined", [](const Value& v) { return !v.is_undefined(); }, nullptr},
    {"undefined", [](const Value& v) { return v.is_undefined(); }, nullptr},
    {"none", [](const Value& v) { return v.is_none(); }, nullptr},
    {"boolean", [](const Value& v) { return v.is(Kind::Bool); }, nullptr},
    {"true", [](const Value& v) { return v.is(Kind::Bool) && v.as_bool(); }, nullptr},
    {"false", [](const Value& v) { return v.is(Kind::Bool) && !v.as_bool(); }, nullptr},
    {"integer", [](const Value& v) { return v.is(Kind::Int); }, nullptr},
    {"float", [](const Value& v) { return v.is(Kind::Float); }, nullptr},
    {"number", [](const Value& v) { return v.is_number(); }, nullptr},
    {"string", [](const Value& v) { return v.is_string(); }, nullptr},
    {"mapping", [](const Value& v) { return v.is(Kind::Dict); }, nullptr},
    {"iterable", [](const Value& v) { return is_iterable(v); }, nullptr},
    {"sequence",
     [](const Value& v) {
       return v.is_sequence() || v.is_string() || v.is(Kind::Dict) || v.is(Kind::Range) ||
              v.is_undefined();
     },
     nullptr},
    // Python's callable() holds for anything with __call__, which undefined values have.
    {"callable",
     [](const Value& v) { return v.is(Kind::Function) || v.is(Kind::Loop) || v.is_undefined(); },
     nullptr},
    {"odd", nullptr, odd_test},
    {"even", nullptr, even_test},
    {"divisibleby", nullptr, divisibleby_test},
    {"sameas", nullptr, sameas_test},
    {"in", nullptr, comparison<CompareOp::In>},
    {"eq", nullptr, comparison<CompareOp::Equal>},
    {"equalto", nullptr, comparison<CompareOp::Equal>},
    {"==", nullptr, comparison<CompareOp::Equal>},
    {"ne", nullptr, comparison<CompareOp::NotEqual>},
    {"!=", nullptr, comparison<CompareOp::NotEqual>},
    {"lt", nullptr, comparison<CompareOp::Less>},
    {"lessthan", nullptr, comparison<CompareOp::Less>},
    {"<", nullptr, comparison<CompareOp::Less>},
    {"le", nullptr, comparison<CompareOp::LessEqual>},
    {"<=", nullptr, comparison<CompareOp::LessEqual>},
    {"gt", nullptr, comparison<CompareOp::Greater>},
    {"greaterthan", nullptr, comparison<CompareOp::Greater>},
    {">", nullptr, comparison<CompareOp::Greater>},
    {"ge", nullptr, comparison<CompareOp::GreaterEqual>},
    {">=", nullptr, comparison<CompareOp::GreaterEqual>},
}};

// ---- global functions

constexpr std::uint64_t kMaxRange = 100'000;  // the same as in Python's sandbox
constexpr std::size_t kMaxTimeFormat = 1000;
constexpr std::size_t kMaxMessage = 4000;

Value range_global(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("range", arguments, {"start", "stop", "step"}, 1);
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

Value dict_global(Runtime& runtime, const Arguments& arguments) {
  const Ref<DictObject> dict = runtime.new_dict();
  update_dict(runtime, *dict, arguments);
  return Value::object(Kind::Dict, dict);
}

Value namespace_global(Runtime& runtime, const Arguments& arguments) {
  const auto object = runtime.heap.make<NamespaceObject>(runtime.meter);
  update_dict(runtime, *object->attributes, arguments);
  return Value::object(Kind::Namespace, object);
}

Value raise_exception_global(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("raise_exception", arguments, {"message"}, 1);
  fail(Errc::BadInput, "{}", to_text(runtime, bound[0]).view().substr(0, kMaxMessage));
}

Value strftime_now_global(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("strftime_now", arguments, {"format"}, 1);
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
  Value (*body)(Runtime& runtime, const Arguments& arguments);
};

constexpr std::array<GlobalEntry, 5> kGlobals = {{
    {"range", range_global},
    {"dict", dict_global},
    {"namespace", namespace_global},
    {"raise_exception", raise_exception_global},
    {"strftime_now", strftime_now_global},
}};

// The entry of a table, by its name.
template <class Entry>
const Entry* find_entry(std::initializer_list<std::span<const Entry>> tables,
                        std::string_view name) {
  for (const std::span<const Entry> table : tables) {
    for (const Entry& entry : table) {
      if (entry.name == name) return &entry;
    }
  }
  return nullptr;
}

}  // namespace

BoundArguments::BoundArguments(std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> names, std::size_t required)
    : function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    fail(Errc::BadInput, "{}() takes at most {} arguments, but {} are given", function,
         names_.size(), arguments.positional.size());
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(names_.begin(), names_.end(), name);
    if (place == names_.end()) {
      fail(Errc::BadInput, "{}() got an unexpected keyword argument '{}'", function, name);
    }
    const Value*& slot = values_[static_cast<std::size_t>(place - names_.begin())];
    if (slot != nullptr) {
      fail(Errc::BadInput, "{}() got multiple values for argument '{}'", function, name);
    }
    slot = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) {
      fail(Errc::BadInput, "{}() is missing its argument '{}'", function, names_[i]);
    }
  }
}

Value BoundArguments::value_or(std::size_t index, Value fallback) const {
  return has(index) ? *values_[index] : std::move(fallback);
}

bool BoundArguments::flag(std::size_t index, bool fallback) const {
  return has(index) ? truthy(*values_[index]) : fallback;
}

std::int64_t BoundArguments::integer(std::size_t index) const {
  require_defined(*values_[index]);
  if (!values_[index]->is_integral()) wrong_type(index, "an integer");
  return values_[index]->as_int();
}

std::int64_t BoundArguments::integer_or(std::size_t index, std::int64_t fallback) const {
  return has(index) ? integer(index) : fallback;
}

const MarkedString& BoundArguments::text(std::size_t index) const {
  require_defined(*values_[index]);
  if (!values_[index]->is_string()) wrong_type(index, "a string");
  return values_[index]->text();
}

void BoundArguments::wrong_type(std::size_t index, std::string_view wanted) const {
  fail(Errc::BadInput, "{}(): the argument '{}' must be {}, not {}", function_, names_[index],
       wanted, type_name(*values_[index]));
}

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                   const Arguments& arguments) {
  const FilterEntry* filter = find_entry<FilterEntry>({scalar_filters(), sequence_filters()}, name);
  if (filter == nullptr) fail(Errc::Unsupported, "there is no filter named '{}'", name);
  return filter->body(runtime, input, arguments);
}

bool apply_test(Runtime& runtime, std::string_view name, const Value& input,
                const Arguments& arguments) {
  const TestEntry* test = find_entry<TestEntry>({kTests}, name);
  if (test == nullptr) fail(Errc::Unsupported, "there is no test named '{}'", name);
  if (test->body != nullptr) return test->body(runtime, input, arguments);
  const BoundArguments bound("test", arguments, {});
  return test->is(input);
}

Value find_global(Runtime& runtime, std::string_view name) {
  const GlobalEntry* global = find_entry<GlobalEntry>({kGlobals}, name);
  if (global == nullptr) return {};
  return runtime.function(std::string(name), [&runtime, body = global->body](Arguments& arguments) {
    return body(runtime, arguments);
  });
}

}  // namespace moeflux::jinja
