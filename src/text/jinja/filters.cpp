// Filters of one value: strings, numbers, JSON.
#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/strings.h"

namespace moeflux::jinja {
namespace {

// ---- strings

// str(value), where a string stays as safe as it is.
Value soft_string(Runtime& runtime, const Value& value) {
  return value.is_string() ? value : runtime.string(to_text(runtime, value));
}

Value string_filter(Runtime& runtime, const Value& input, const BoundArguments&) {
  return soft_string(runtime, input);
}

template <Case kWanted>
Value case_filter(Runtime& runtime, const Value& input, const BoundArguments&) {
  return runtime.string(change_case(runtime, to_text(runtime, input), kWanted), input.is_safe());
}

Value capitalize_filter(Runtime& runtime, const Value& input, const BoundArguments&) {
  return runtime.string(capitalize(runtime, to_text(runtime, input)), input.is_safe());
}

bool begins_word(char32_t c) {
  return is_space(c) || c == U'-' || c == U'(' || c == U'{' || c == U'[' || c == U'<';
}

Value title_filter(Runtime& runtime, const Value& input, const BoundArguments&) {
  const MarkedString text = to_text(runtime, input);
  TextBuilder out(runtime);
  bool first = true;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text.bytes(), at);
    const bool separator = c.valid && begins_word(c.value);
    out.append(c.valid ? to_case(c.value, first && !separator ? Case::Upper : Case::Lower)
                       : std::string(text.view().substr(at, c.size)),
               text.origin_at(at));
    first = separator;
    at += c.size;
  }
  return out.value(input.is_safe());
}

Value trim_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  const MarkedString text = to_text(runtime, input);
  runtime.meter.text(text.size());
  return runtime.string(strip(runtime, text, Side::Both, bound.text_or_null(0)), input.is_safe());
}

Value replace_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  return runtime.string(replace(runtime, to_text(runtime, input), to_text(runtime, bound[0]),
                                to_text(runtime, bound[1]),
                                bound.given(2) ? bound.integer(2) : -1));
}

Value indent_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  require_defined(input);
  if (!input.is_string()) {
    fail(Errc::BadInput, "indent: expected a string, not {}", type_name(input));
  }
  MarkedString indentation;
  if (bound.has(0) && bound[0].is_string()) {
    indentation = bound.text(0);
  } else {
    TextBuilder spaces(runtime);
    const std::int64_t width = bound.integer_or(0, 4);
    spaces.fill(" ", width > 0 ? static_cast<std::uint64_t>(width) : 0, Origin::Markup);
    indentation = spaces.take();
  }
  const bool blank = bound.flag(2, false);
  MarkedString text = input.text();
  text.append("\n", Origin::Markup);  // so that a line end at the end is kept
  TextBuilder out(runtime);
  if (bound.flag(1, false)) out.append(indentation);
  bool first = true;
  for (const MarkedString& line : split_lines(runtime, text, false)) {
    if (!first) out.append("\n");
    if (!first && (blank || !line.empty())) out.append(indentation);
    out.append(line);
    first = false;
  }
  return out.value(input.is_safe());
}

Value format_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  const Arguments& arguments = bound.all();
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail(Errc::BadInput, "format: positional and keyword arguments at the same time");
  }
  const Value format = soft_string(runtime, input);
  if (arguments.named.empty()) {
    return percent_format(runtime, format, runtime.tuple(arguments.positional));
  }
  const Ref<DictObject> named = runtime.new_dict();
  update_dict(runtime, *named, arguments);
  return percent_format(runtime, format, Value::object(Kind::Dict, named));
}

Value escape_filter(Runtime& runtime, const Value& input, const BoundArguments&) {
  if (input.is_safe()) return input;
  return runtime.string(html_escape(runtime, to_text(runtime, input)), true);
}

Value safe_filter(Runtime& runtime, const Value& input, const BoundArguments&) {
  return runtime.string(to_text(runtime, input), true);
}

// ---- numbers, read as Python's int() and float() do

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

Value int_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
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

Value float_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  require_defined(input);
  if (input.is_number()) return Value::real(input.as_real(), input.origin());
  if (input.is_string()) {
    const Origin origin = input.text().has_data() ? Origin::Data : Origin::Markup;
    if (const auto value = parse_float(runtime, input.text())) return Value::real(*value, origin);
  }
  return bound.value_or(0, Value::real(0));
}

Value abs_filter(Runtime&, const Value& input, const BoundArguments&) {
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

Value round_filter(Runtime&, const Value& input, const BoundArguments& bound) {
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

Value tojson_filter(Runtime& runtime, const Value& input, const BoundArguments& bound) {
  const Origin origin = holds_data(runtime, input) ? Origin::Data : Origin::Markup;
  return runtime.string(MarkedString(to_json(runtime, input, json_style(bound)), origin));
}

Value from_json_filter(Runtime& runtime, const Value& input, const BoundArguments&) {
  require_defined(input);
  if (!input.is_string()) {
    fail(Errc::BadInput, "from_json: expected a string, not {}", type_name(input));
  }
  runtime.meter.text(8 * input.text().size());
  const Origin origin = input.text().has_data() ? Origin::Data : Origin::Markup;
  return runtime.from_json(parse_json(input.view(), "from_json"), origin);
}

constexpr Builtin kScalarFilters[] = {
    {"trim", trim_filter, {{"chars"}}},
    {"string", string_filter},
    {"upper", case_filter<Case::Upper>},
    {"lower", case_filter<Case::Lower>},
    {"capitalize", capitalize_filter},
    {"title", title_filter},
    {"replace", replace_filter, {{"old", "new", "count"}, 2}},
    {"indent", indent_filter, {{"width", "first", "blank"}}},
    {"tojson", tojson_filter, {{"ensure_ascii", "indent", "separators", "sort_keys"}}},
    {"from_json", from_json_filter},
    {"fromjson", from_json_filter},
    {"int", int_filter, {{"default", "base"}}},
    {"float", float_filter, {{"default"}}},
    {"abs", abs_filter},
    {"round", round_filter, {{"precision", "method"}}},
    {"safe", safe_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"format", format_filter, kAnyArguments},
};

}  // namespace

std::span<const Builtin> scalar_filters() {
  return kScalarFilters;
}

}  // namespace moeflux::jinja
