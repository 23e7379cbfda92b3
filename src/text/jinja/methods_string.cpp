#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/operations.h"
#include "text/jinja/string_tools.h"

namespace moeflux::jinja {
namespace {

Value same_kind(Runtime& runtime, const Value& self, MarkedString text) {
  return runtime.string(std::move(text), self.is_safe());
}

// ---- case

template <Case kWanted>
Value to_case_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("case", arguments, {});
  return same_kind(runtime, self, change_case(runtime, self.text(), kWanted));
}

Value capitalize_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("capitalize", arguments, {});
  return same_kind(runtime, self, capitalize(runtime, self.text()));
}

// Calls `wanted(c, after_letter)` for every character to choose its case.
template <class Wanted>
Value recase(Runtime& runtime, const Value& self, Wanted wanted) {
  const MarkedString& text = self.text();
  TextBuilder out(runtime);
  bool after_letter = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text.bytes(), at);
    const bool cased = c.valid && (is_upper(c.value) || is_lower(c.value) || is_title(c.value));
    out.append(cased ? to_case(c.value, wanted(c.value, after_letter))
                     : std::string(text.view().substr(at, c.size)),
               text.origin_at(at));
    after_letter = cased;
    at += c.size;
  }
  return out.value(self.is_safe());
}

Value title_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("title", arguments, {});
  return recase(runtime, self,
                [](char32_t, bool after) { return after ? Case::Lower : Case::Title; });
}

Value swapcase_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("swapcase", arguments, {});
  return recase(runtime, self,
                [](char32_t c, bool) { return is_upper(c) ? Case::Lower : Case::Upper; });
}

// ---- strip, prefix, suffix, replace

template <Side kSide>
Value strip_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("strip", arguments, {"chars"});
  runtime.meter.text(self.text().size());
  return same_kind(runtime, self,
                   strip(runtime, self.text(), kSide, bound.given(0) ? &bound.text(0) : nullptr));
}

Value removeprefix_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("removeprefix", arguments, {"prefix"}, 1);
  const MarkedString& prefix = bound.text(0);
  const bool found = self.view().starts_with(prefix.view());
  return found ? same_kind(runtime, self, self.text().substr(prefix.size())) : self;
}

Value removesuffix_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("removesuffix", arguments, {"suffix"}, 1);
  const MarkedString& suffix = bound.text(0);
  const bool found = self.view().ends_with(suffix.view());
  return found ? same_kind(runtime, self, self.text().substr(0, self.text().size() - suffix.size()))
               : self;
}

Value replace_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"}, 2);
  return same_kind(
      runtime, self,
      replace(runtime, self.text(), bound.text(0), bound.text(1), bound.integer_or(2, -1)));
}

// ---- search. Optional start and end count characters.

struct Window {
  std::size_t begin, end;  // bytes
};

Window window(const Value& self, const BoundArguments& bound) {
  const std::string_view text = self.view();
  Window result{0, text.size()};
  if (!bound.given(1) && !bound.given(2)) return result;
  const auto length = static_cast<std::int64_t>(count_characters(text));
  const auto byte_at = [&](std::int64_t index) {
    if (index < 0) index = std::max<std::int64_t>(index + length, 0);
    return byte_of_character(text, static_cast<std::size_t>(std::min(index, length)));
  };
  if (bound.given(1)) result.begin = byte_at(bound.integer(1));
  if (bound.given(2)) result.end = byte_at(bound.integer(2));
  if (result.begin > result.end) result.end = result.begin;
  return result;
}

template <bool kFromEnd>
std::int64_t find_in(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("find", arguments, {"sub", "start", "end"}, 1);
  runtime.meter.text(self.text().size());
  const Window range = window(self, bound);
  const std::string_view searched = self.view().substr(range.begin, range.end - range.begin);
  const std::string_view wanted = bound.text(0).view();
  const std::size_t found =
      kFromEnd ? find_last_text(runtime, searched, wanted) : find_text(runtime, searched, wanted);
  if (found == std::string_view::npos) return -1;
  return static_cast<std::int64_t>(count_characters(self.view().substr(0, range.begin + found)));
}

template <bool kFromEnd>
Value find_method_of(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return Value::integer(find_in<kFromEnd>(runtime, self, arguments));
}

template <bool kFromEnd>
Value index_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const std::int64_t found = find_in<kFromEnd>(runtime, self, arguments);
  if (found < 0) fail(Errc::BadInput, "substring not found");
  return Value::integer(found);
}

Value count_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("count", arguments, {"sub", "start", "end"}, 1);
  runtime.meter.text(self.text().size());
  const Window range = window(self, bound);
  const std::string_view searched = self.view().substr(range.begin, range.end - range.begin);
  const std::string_view wanted = bound.text(0).view();
  if (wanted.empty()) {
    return Value::integer(static_cast<std::int64_t>(count_characters(searched)) + 1);
  }
  std::int64_t count = 0;
  for (std::size_t at = find_text(runtime, searched, wanted); at != std::string_view::npos;
       at = find_text(runtime, searched, wanted, at + wanted.size())) {
    ++count;
  }
  return Value::integer(count);
}

template <bool kAtEnd>
Value starts_or_ends(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(kAtEnd ? "endswith" : "startswith", arguments,
                             {"prefix", "start", "end"}, 1);
  runtime.meter.step();
  const Window range = window(self, bound);
  const std::string_view text = self.view().substr(range.begin, range.end - range.begin);
  const auto matches = [&](const Value& wanted) {
    require_defined(wanted);
    if (!wanted.is_string()) {
      fail(Errc::BadInput, "{} first arg must be str or a tuple of str, not {}",
           kAtEnd ? "endswith" : "startswith", type_name(wanted));
    }
    return kAtEnd ? text.ends_with(wanted.view()) : text.starts_with(wanted.view());
  };
  if (!bound[0].is(Kind::Tuple)) return Value::boolean(matches(bound[0]));
  const auto& any = bound[0].as<SequenceObject>().items;
  return Value::boolean(std::any_of(any.begin(), any.end(), matches));
}

// ---- predicates

template <bool (*kIs)(char32_t)>
Value all_are(Runtime& runtime, const Value& self, const Arguments&) {
  const std::string_view text = self.view();
  runtime.meter.text(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text, at);
    if (!c.valid || !kIs(c.value)) return Value::boolean(false);
    at += c.size;
  }
  return Value::boolean(!text.empty());
}

template <bool kUpper>
Value is_in_case(Runtime& runtime, const Value& self, const Arguments&) {
  const std::string_view text = self.view();
  runtime.meter.text(text.size());
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text, at);
    const bool wanted = kUpper ? is_upper(c.value) : is_lower(c.value);
    const bool other = is_title(c.value) || (kUpper ? is_lower(c.value) : is_upper(c.value));
    if (c.valid && other) return Value::boolean(false);
    any |= c.valid && wanted;
    at += c.size;
  }
  return Value::boolean(any);
}

bool is_ascii(char32_t c) {
  return c < 0x80;
}

Value isascii_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (self.text().empty()) return Value::boolean(true);
  return all_are<is_ascii>(runtime, self, arguments);
}

// ---- padding and formatting

std::string fill_of(const BoundArguments& bound) {
  const std::string fill = bound.has(1) ? bound.text(1).bytes() : " ";
  if (count_characters(fill) != 1) {
    fail(Errc::BadInput, "the fill character must be exactly one character long");
  }
  return fill;
}

Value center_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("center", arguments, {"width", "fillchar"}, 1);
  return same_kind(runtime, self, center(runtime, self.text(), bound.integer(0), fill_of(bound)));
}

template <bool kLeft>
Value justify(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("ljust", arguments, {"width", "fillchar"}, 1);
  const auto length = static_cast<std::int64_t>(length_of(runtime, self));
  const std::int64_t width = bound.integer(0);
  const auto missing = width > length ? static_cast<std::uint64_t>(width - length) : 0;
  TextBuilder out(runtime);
  if (!kLeft) out.fill(fill_of(bound), missing, Origin::Markup);
  out.append(self.text());
  if (kLeft) out.fill(fill_of(bound), missing, Origin::Markup);
  return out.value(self.is_safe());
}

Value zfill_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("zfill", arguments, {"width"}, 1);
  const auto length = static_cast<std::int64_t>(length_of(runtime, self));
  const std::int64_t width = bound.integer(0);
  const MarkedString& text = self.text();
  const bool sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  TextBuilder out(runtime);
  out.append(text, 0, sign ? 1 : 0);
  out.fill("0", width > length ? static_cast<std::uint64_t>(width - length) : 0, Origin::Markup);
  out.append(text, sign ? 1 : 0, text.size());
  return out.value(self.is_safe());
}

Value format_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return brace_format(runtime, self, arguments);
}

Value format_map_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("format_map", arguments, {"mapping"}, 1);
  Arguments named;
  if (!bound[0].is(Kind::Dict)) fail(Errc::BadInput, "format_map() takes a dict");
  for (const auto& [key, value] : bound[0].as<DictObject>().entries()) {
    if (key.is_string()) named.named.emplace_back(key.text().bytes(), value);
  }
  return brace_format(runtime, self, named);
}

Value unsupported_method(Runtime&, const Value&, const Arguments&) {
  fail(Errc::Unsupported, "this method of str is not supported");
}

constexpr std::array<MethodEntry, 41> kMethods = {{
    {"startswith", starts_or_ends<false>},
    {"endswith", starts_or_ends<true>},
    {"strip", strip_method<Side::Both>},
    {"lstrip", strip_method<Side::Left>},
    {"rstrip", strip_method<Side::Right>},
    {"replace", replace_method},
    {"lower", to_case_method<Case::Lower>},
    {"upper", to_case_method<Case::Upper>},
    {"casefold", to_case_method<Case::Fold>},
    {"capitalize", capitalize_method},
    {"title", title_method},
    {"swapcase", swapcase_method},
    {"removeprefix", removeprefix_method},
    {"removesuffix", removesuffix_method},
    {"find", find_method_of<false>},
    {"rfind", find_method_of<true>},
    {"index", index_method<false>},
    {"rindex", index_method<true>},
    {"count", count_method},
    {"isalpha", all_are<is_alpha>},
    {"isalnum", all_are<is_alnum>},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"isnumeric", all_are<is_numeric>},
    {"isspace", all_are<is_space>},
    {"isprintable", all_are<is_printable>},
    {"islower", is_in_case<false>},
    {"isupper", is_in_case<true>},
    {"isascii", isascii_method},
    {"center", center_method},
    {"ljust", justify<true>},
    {"rjust", justify<false>},
    {"zfill", zfill_method},
    {"format", format_method},
    {"format_map", format_map_method},
    // Templates may ask whether these exist.
    {"encode", unsupported_method},
    {"expandtabs", unsupported_method},
    {"isidentifier", unsupported_method},
    {"istitle", unsupported_method},
    {"maketrans", unsupported_method},
    {"translate", unsupported_method},
}};

}  // namespace

std::span<const MethodEntry> string_methods() {
  return kMethods;
}

}  // namespace moeflux::jinja
