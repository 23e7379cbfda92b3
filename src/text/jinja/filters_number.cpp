#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/json_text.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/sorting.h"
#include "text/jinja/string_tools.h"

namespace moeflux::jinja {
namespace {

// ---- reading numbers as Python's int() and float() do

std::string number_text(Runtime& runtime, const MarkedString& text) {
  runtime.meter.text(text.size());
  const MarkedString stripped = strip(runtime, text, Side::Both, nullptr);
  std::string digits;
  for (std::size_t i = 0; i < stripped.size(); ++i) {
    const char c = stripped.bytes()[i];
    const bool between = c == '_' && i > 0 && i + 1 < stripped.size() &&
                         stripped.bytes()[i - 1] != '_' && stripped.bytes()[i + 1] != '_';
    if (!between) digits += c;
  }
  return digits;
}

std::optional<std::int64_t> parse_int(Runtime& runtime, const MarkedString& text, int base) {
  std::string digits = number_text(runtime, text);
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  const auto prefixed = [&](char letter) {
    return digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == letter;
  };
  const int implied = prefixed('x') ? 16 : prefixed('o') ? 8 : prefixed('b') ? 2 : 10;
  if (implied != 10 && (base == 0 || base == implied)) {
    digits.erase(0, 2);
    base = implied;
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || digits.empty() || digits[0] == '-') return std::nullopt;
  if (negative) digits.insert(0, 1, '-');
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (end != digits.data() + digits.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    fail(Errc::LimitExceeded, "the integer {} does not fit in 64 bits", digits.substr(0, 40));
  }
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<double> parse_float(Runtime& runtime, const MarkedString& text) {
  std::string digits = number_text(runtime, text);
  if (digits.starts_with('+')) digits.erase(0, 1);
  if (digits.starts_with("+") || digits.find("0x") != std::string::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || end != digits.data() + digits.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    const bool tiny =
        digits.find("e-") != std::string::npos || digits.find("E-") != std::string::npos;
    return tiny ? 0.0 : digits[0] == '-' ? -HUGE_VAL : HUGE_VAL;
  }
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::int64_t truncated(double value) {
  if (!(std::abs(value) < 9.2e18)) {
    fail(Errc::BadInput, "cannot convert float {} to an integer", float_repr(value));
  }
  return static_cast<std::int64_t>(value);
}

Value int_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("int", arguments, {"default", "base"});
  require_defined(input);
  if (input.is_integral()) return Value::integer(input.as_int(), input.origin());
  if (input.is(Kind::Float)) return Value::integer(truncated(input.as_real()), input.origin());
  if (input.is_string()) {
    const Origin origin = input.text().has_data() ? Origin::Data : Origin::Markup;
    const auto base = static_cast<int>(std::clamp<std::int64_t>(bound.integer_or(1, 10), -1, 99));
    if (const auto value = parse_int(runtime, input.text(), base))
      return Value::integer(*value, origin);
    if (const auto value = parse_float(runtime, input.text()); value && !std::isnan(*value)) {
      return Value::integer(truncated(*value), origin);
    }
  }
  return bound.value_or(0, Value::integer(0));
}

Value float_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("float", arguments, {"default"});
  require_defined(input);
  if (input.is_number()) return Value::real(input.as_real(), input.origin());
  if (input.is_string()) {
    const Origin origin = input.text().has_data() ? Origin::Data : Origin::Markup;
    if (const auto value = parse_float(runtime, input.text())) return Value::real(*value, origin);
  }
  return bound.value_or(0, Value::real(0));
}

Value abs_filter(Runtime&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("abs", arguments, {});
  require_defined(input);
  if (input.is_integral()) return input.as_int() < 0 ? negate(input) : plus(input);
  if (input.is(Kind::Float)) return Value::real(std::abs(input.as_real()), input.origin());
  fail(Errc::BadInput, "bad operand type for abs(): '{}'", type_name(input));
}

// round(): to even at exactly one half, judged on the exact binary value.
double rounded(double value, int precision) {
  if (!std::isfinite(value)) return value;
  if (precision >= 0) {
    const std::string digits = fmt::format("{:.{}f}", value, std::min(precision, 330));
    double result = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), result);
    return result;
  }
  const double unit = std::pow(10.0, -precision);
  return std::nearbyint(value / unit) * unit;
}

Value round_filter(Runtime&, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("round", arguments, {"precision", "method"});
  require_defined(input);
  if (!input.is_number()) fail(Errc::BadInput, "round: not a number: '{}'", type_name(input));
  const auto precision =
      static_cast<int>(std::clamp<std::int64_t>(bound.integer_or(0, 0), -330, 330));
  const std::string method = bound.has(1) ? bound.text(1).bytes() : "common";
  if (method == "common") {
    if (input.is_integral() && precision >= 0) {
      return Value::integer(input.as_int(), input.origin());
    }
    const double value = rounded(input.as_real(), precision);
    if (!input.is_integral()) return Value::real(value, input.origin());
    return Value::integer(truncated(value), input.origin());
  }
  if (method != "ceil" && method != "floor") {
    fail(Errc::BadInput, "method must be common, ceil or floor");
  }
  const double unit = std::pow(10.0, precision);
  const double scaled = input.as_real() * unit;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit,
                     input.origin());
}

Value filesizeformat_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("filesizeformat", arguments, {"binary"});
  require_defined(input);
  std::optional<double> bytes;
  if (input.is_number()) bytes = input.as_real();
  if (input.is_string()) bytes = parse_float(runtime, input.text());
  if (!bytes) fail(Errc::BadInput, "filesizeformat: not a number");
  const bool binary = bound.flag(0, false);
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return runtime.string("1 Byte", input.origin());
  if (*bytes < base) {
    return runtime.string(fmt::format("{} Bytes", truncated(*bytes)), input.origin());
  }
  static constexpr std::array<std::string_view, 8> kPrefixes = {"k", "M", "G", "T",
                                                                "P", "E", "Z", "Y"};
  double unit = base;
  std::string_view prefix;
  for (const std::string_view candidate : kPrefixes) {
    prefix = candidate;
    unit *= base;
    if (*bytes < unit) break;
  }
  if (binary && prefix == "k") prefix = "K";
  return runtime.string(
      fmt::format("{:.1f} {}{}", base * *bytes / unit, prefix, binary ? "iB" : "B"),
      input.origin());
}

// ---- JSON

JsonStyle json_style(const BoundArguments& bound) {
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  if (bound.given(1)) {
    if (bound[1].is_string()) {
      style.indent = bound.text(1).bytes();
    } else {
      const std::int64_t width = std::clamp<std::int64_t>(bound.integer(1), 0, 1000);
      style.indent = std::string(static_cast<std::size_t>(width), ' ');
    }
    style.item_separator = ',';
  }
  if (bound.given(2)) {
    const bool pair = bound[2].is_sequence() && bound[2].as<SequenceObject>().items.size() == 2;
    if (!pair) fail(Errc::BadInput, "tojson: separators must be two strings");
    const auto& both = bound[2].as<SequenceObject>().items;
    if (!both[0].is_string() || !both[1].is_string()) {
      fail(Errc::BadInput, "tojson: separators must be two strings");
    }
    style.item_separator = both[0].text().bytes();
    style.key_separator = both[1].text().bytes();
  }
  return style;
}

Value tojson_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("tojson", arguments,
                             {"ensure_ascii", "indent", "separators", "sort_keys"});
  const Origin origin = holds_data(runtime, input) ? Origin::Data : Origin::Markup;
  return runtime.string(MarkedString(to_json(runtime, input, json_style(bound)), origin));
}

Value from_json_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("from_json", arguments, {});
  require_defined(input);
  if (!input.is_string()) {
    fail(Errc::BadInput, "from_json: expected a string, not {}", type_name(input));
  }
  runtime.meter.text(8 * input.text().size());
  const Origin origin = input.text().has_data() ? Origin::Data : Origin::Markup;
  return runtime.from_json(parse_json(input.view(), "from_json"), origin);
}

// The value with every dict in key order, as pprint prints it.
Value with_sorted_dicts(Runtime& runtime, const Value& value) {
  const DepthGuard guard(runtime.meter);
  if (value.is_sequence()) {
    std::vector<Value> items;
    for (const Value& item : value.as<SequenceObject>().items) {
      items.push_back(with_sorted_dicts(runtime, item));
    }
    return value.is(Kind::List) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
  }
  if (!value.is(Kind::Dict)) return value;
  std::vector<Value> keys;
  for (const auto& entry : value.as<DictObject>().entries()) keys.push_back(entry.first);
  const Ref<DictObject> dict = runtime.new_dict();
  for (const Value& key : sorted(runtime, keys, keys, false)) {
    dict->set(key, with_sorted_dicts(runtime, *value.as<DictObject>().find(key)));
  }
  return Value::object(Kind::Dict, dict, value.origin());
}

Value pprint_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("pprint", arguments, {});
  MarkedString text = to_repr(runtime, with_sorted_dicts(runtime, input));
  if (count_characters(text.view()) > 80) {
    fail(Errc::Unsupported, "pprint is supported only for values that fit in one line");
  }
  return runtime.string(std::move(text));
}

Value random_filter(Runtime&, const Value&, const Arguments&) {
  fail(Errc::Unsupported, "the filter 'random' is not supported: prompts have to be repeatable");
}

constexpr std::array<FilterEntry, 10> kNumberFilters = {{
    {"tojson", tojson_filter},
    {"from_json", from_json_filter},
    {"fromjson", from_json_filter},
    {"int", int_filter},
    {"float", float_filter},
    {"abs", abs_filter},
    {"round", round_filter},
    {"filesizeformat", filesizeformat_filter},
    {"pprint", pprint_filter},
    {"random", random_filter},
}};

}  // namespace

std::span<const FilterEntry> number_filters() {
  return kNumberFilters;
}

}  // namespace moeflux::jinja
