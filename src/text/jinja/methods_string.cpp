// Methods of strings.
#include <algorithm>

#include "base/error.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/strings.h"

namespace moeflux::jinja {
namespace {

Value same_kind(Runtime& runtime, const Value& self, MarkedString text) {
  return runtime.string(std::move(text), self.is_safe());
}

// ---- case

template <Case kWanted>
Value to_case_method(Runtime& runtime, const Value& self, const BoundArguments&) {
  return same_kind(runtime, self, change_case(runtime, self.text(), kWanted));
}

Value capitalize_method(Runtime& runtime, const Value& self, const BoundArguments&) {
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

Value title_method(Runtime& runtime, const Value& self, const BoundArguments&) {
  return recase(runtime, self,
                [](char32_t, bool after) { return after ? Case::Lower : Case::Title; });
}

// ---- strip, prefix, suffix, replace

template <Side kSide>
Value strip_method(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  runtime.meter.text(self.text().size());
  return same_kind(runtime, self, strip(runtime, self.text(), kSide, bound.text_or_null(0)));
}

Value removeprefix_method(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  const MarkedString& prefix = bound.text(0);
  const bool found = self.view().starts_with(prefix.view());
  return found ? same_kind(runtime, self, self.text().substr(prefix.size())) : self;
}

Value removesuffix_method(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  const MarkedString& suffix = bound.text(0);
  const bool found = self.view().ends_with(suffix.view());
  return found ? same_kind(runtime, self, self.text().substr(0, self.text().size() - suffix.size()))
               : self;
}

Value replace_method(Runtime& runtime, const Value& self, const BoundArguments& bound) {
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
std::int64_t find_in(Runtime& runtime, const Value& self, const BoundArguments& bound) {
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
Value find_method_of(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  return Value::integer(find_in<kFromEnd>(runtime, self, bound));
}

template <bool kFromEnd>
Value index_method(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  const std::int64_t found = find_in<kFromEnd>(runtime, self, bound);
  if (found < 0) fail(Errc::BadInput, "substring not found");
  return Value::integer(found);
}

Value count_method(Runtime& runtime, const Value& self, const BoundArguments& bound) {
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
Value starts_or_ends(Runtime& runtime, const Value& self, const BoundArguments& bound) {
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
Value all_are(Runtime& runtime, const Value& self, const BoundArguments&) {
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
Value is_in_case(Runtime& runtime, const Value& self, const BoundArguments&) {
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

// ---- padding and formatting

Value format_method(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  return brace_format(runtime, self, bound.all());
}

// ---- splitting and joining

class Splitter {
 public:
  Splitter(Runtime& runtime, const Value& self, std::int64_t max_splits)
      : runtime_(runtime),
        text_(self.text()),
        safe_(self.is_safe()),
        splits_left_(max_splits < 0 ? INT64_MAX : max_splits) {
    runtime.meter.text(text_.size());
  }

  Value by(const std::string& separator) {
    std::size_t begin = 0;
    while (splits_left_ > 0) {
      const std::size_t found = find_text(runtime_, text_.view(), separator, begin);
      if (found == std::string::npos) break;
      add(begin, found);
      begin = found + separator.size();
    }
    add(begin, text_.size());
    return list();
  }

  Value by_from_end(const std::string& separator) {
    std::size_t end = text_.size();
    runtime_.meter.step(text_.size() / 64 * separator.size());  // the worst a search can cost
    while (splits_left_ > 0 && end >= separator.size()) {
      const std::size_t found = text_.bytes().rfind(separator, end - separator.size());
      if (found == std::string::npos) break;
      add(found + separator.size(), end);
      end = found;
    }
    add(0, end);
    std::reverse(parts_.begin(), parts_.end());
    return list();
  }

  Value by_space() {
    std::size_t at = skip_spaces(text_.view(), 0);
    while (at < text_.size()) {
      std::size_t end = splits_left_ == 0 ? text_.size() : at;
      while (end < text_.size() && !is_space_at(end)) end += decode(text_.bytes(), end).size;
      add(at, end);
      at = skip_spaces(text_.view(), end);
    }
    return list();
  }

  Value by_space_from_end() {
    std::size_t end = skip_spaces_back(text_.view(), text_.size());
    while (end > 0) {
      std::size_t begin = splits_left_ == 0 ? 0 : end;
      while (begin > 0 && skip_spaces_back(text_.view(), begin) == begin)
        begin -= decode_before(text_.bytes(), begin).size;
      add(begin, end);
      end = skip_spaces_back(text_.view(), begin);
    }
    std::reverse(parts_.begin(), parts_.end());
    return list();
  }

 private:
  void add(std::size_t begin, std::size_t end) {
    parts_.push_back(runtime_.string(text_.substr(begin, end), safe_));
    --splits_left_;
  }
  Value list() { return runtime_.list(std::move(parts_)); }

  bool is_space_at(std::size_t at) const { return skip_spaces(text_.view(), at) > at; }

  Runtime& runtime_;
  const MarkedString& text_;
  const bool safe_;
  std::int64_t splits_left_;
  std::vector<Value> parts_;
};

template <bool kFromEnd>
Value split_method(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  Splitter splitter(runtime, self, bound.integer_or(1, -1));
  if (!bound.given(0)) return kFromEnd ? splitter.by_space_from_end() : splitter.by_space();
  const std::string& separator = bound.text(0).bytes();
  if (separator.empty()) fail(Errc::BadInput, "empty separator");
  return kFromEnd ? splitter.by_from_end(separator) : splitter.by(separator);
}

Value splitlines_method(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  std::vector<Value> lines;
  for (MarkedString& line : split_lines(runtime, self.text(), bound.flag(0, false))) {
    lines.push_back(runtime.string(std::move(line), self.is_safe()));
  }
  return runtime.list(std::move(lines));
}

template <bool kFromEnd>
Value partition_method(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  const MarkedString& text = self.text();
  const std::string& separator = bound.text(0).bytes();
  if (separator.empty()) fail(Errc::BadInput, "empty separator");
  runtime.meter.text(text.size());
  const std::size_t found = kFromEnd ? find_last_text(runtime, text.view(), separator)
                                     : find_text(runtime, text.view(), separator);
  const Value nothing = runtime.string("");
  if (found == std::string::npos) {
    return kFromEnd ? runtime.tuple({nothing, nothing, self})
                    : runtime.tuple({self, nothing, nothing});
  }
  const std::size_t after = found + separator.size();
  return runtime.tuple({runtime.string(text.substr(0, found), self.is_safe()),
                        runtime.string(text.substr(found, after), self.is_safe()),
                        runtime.string(text.substr(after), self.is_safe())});
}

Value join_method(Runtime& runtime, const Value& self, const BoundArguments& bound) {
  TextBuilder out(runtime);
  bool first = true;
  for (const Value& item : items_of(runtime, bound[0])) {
    if (!item.is_string()) {
      fail(Errc::BadInput, "join(): expected str instances, {} found", type_name(item));
    }
    if (!first) out.append(self.text());
    first = false;
    const bool escape = self.is_safe() && !item.is_safe();
    out.append(escape ? html_escape(runtime, item.text()) : item.text());
  }
  return out.value(self.is_safe());
}

constexpr Builtin kStringMethods[] = {
    {"startswith", starts_or_ends<false>, {{"prefix", "start", "end"}, 1}},
    {"endswith", starts_or_ends<true>, {{"prefix", "start", "end"}, 1}},
    {"strip", strip_method<Side::Both>, {{"chars"}}},
    {"lstrip", strip_method<Side::Left>, {{"chars"}}},
    {"rstrip", strip_method<Side::Right>, {{"chars"}}},
    {"replace", replace_method, {{"old", "new", "count"}, 2}},
    {"lower", to_case_method<Case::Lower>},
    {"upper", to_case_method<Case::Upper>},
    {"capitalize", capitalize_method},
    {"title", title_method},
    {"removeprefix", removeprefix_method, {{"prefix"}, 1}},
    {"removesuffix", removesuffix_method, {{"suffix"}, 1}},
    {"find", find_method_of<false>, {{"sub", "start", "end"}, 1}},
    {"rfind", find_method_of<true>, {{"sub", "start", "end"}, 1}},
    {"index", index_method<false>, {{"sub", "start", "end"}, 1}},
    {"rindex", index_method<true>, {{"sub", "start", "end"}, 1}},
    {"count", count_method, {{"sub", "start", "end"}, 1}},
    {"isalpha", all_are<is_alpha>, kAnyArguments},
    {"isalnum", all_are<is_alnum>, kAnyArguments},
    {"isdigit", all_are<is_digit>, kAnyArguments},
    {"isspace", all_are<is_space>, kAnyArguments},
    {"islower", is_in_case<false>, kAnyArguments},
    {"isupper", is_in_case<true>, kAnyArguments},
    {"format", format_method, kAnyArguments},
    {"split", split_method<false>, {{"sep", "maxsplit"}}},
    {"rsplit", split_method<true>, {{"sep", "maxsplit"}}},
    {"splitlines", splitlines_method, {{"keepends"}}},
    {"partition", partition_method<false>, {{"sep"}, 1}},
    {"rpartition", partition_method<true>, {{"sep"}, 1}},
    {"join", join_method, {{"iterable"}, 1}},
};

}  // namespace

std::span<const Builtin> string_methods() {
  return kStringMethods;
}

}  // namespace moeflux::jinja
