#include <array>

#include "base/error.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/string_tools.h"
#include "text/jinja/word_wrap.h"

namespace moeflux::jinja {
namespace {

// str(value), where a string stays as safe as it is.
Value soft_string(Runtime& runtime, const Value& value) {
  return value.is_string() ? value : runtime.string(to_text(runtime, value));
}

template <Case kWanted>
Value case_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("case", arguments, {});
  return runtime.string(change_case(runtime, to_text(runtime, input), kWanted), input.is_safe());
}

Value capitalize_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("capitalize", arguments, {});
  return runtime.string(capitalize(runtime, to_text(runtime, input)), input.is_safe());
}

bool begins_word(char32_t c) {
  return is_space(c) || c == U'-' || c == U'(' || c == U'{' || c == U'[' || c == U'<';
}

Value title_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("title", arguments, {});
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

Value trim_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("trim", arguments, {"chars"});
  const MarkedString text = to_text(runtime, input);
  runtime.meter.text(text.size());
  return runtime.string(strip(runtime, text, Side::Both, bound.given(0) ? &bound.text(0) : nullptr),
                        input.is_safe());
}

Value replace_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"}, 2);
  return runtime.string(replace(runtime, to_text(runtime, input), to_text(runtime, bound[0]),
                                to_text(runtime, bound[1]),
                                bound.given(2) ? bound.integer(2) : -1));
}

Value string_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("string", arguments, {});
  return soft_string(runtime, input);
}

Value center_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("center", arguments, {"width"});
  return runtime.string(center(runtime, to_text(runtime, input), bound.integer_or(0, 80)),
                        input.is_safe());
}

Value indent_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("indent", arguments, {"width", "first", "blank"});
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

Value truncate_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const MarkedString end = bound.has(2) ? bound.text(2) : MarkedString("...", Origin::Markup);
  const auto end_length = static_cast<std::int64_t>(count_characters(end.view()));
  const std::int64_t length = bound.integer_or(0, 255);
  const std::int64_t leeway = bound.given(3) ? bound.integer(3) : 5;
  if (length < end_length || leeway < 0) {
    fail(Errc::BadInput, "truncate: the length must be at least {}", end_length);
  }
  if (static_cast<std::int64_t>(length_of(runtime, input)) - leeway <= length) return input;
  if (!input.is_string()) {
    fail(Errc::BadInput, "truncate: expected a string, not {}", type_name(input));
  }
  const MarkedString& text = input.text();
  std::size_t cut = byte_of_character(text.bytes(), static_cast<std::size_t>(length - end_length));
  if (!bound.flag(1, false)) {
    const std::size_t space = text.view().substr(0, cut).rfind(' ');
    if (space != std::string_view::npos) cut = space;
  }
  TextBuilder out(runtime);
  out.append(text, 0, cut);
  out.append(end);
  return out.value();
}

Value wordcount_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("wordcount", arguments, {});
  const MarkedString text = to_text(runtime, input);
  runtime.meter.text(text.size());
  std::int64_t words = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text.bytes(), at);
    const bool word = c.valid && (is_alnum(c.value) || c.value == U'_');
    if (word && !in_word) ++words;
    in_word = word;
    at += c.size;
  }
  return Value::integer(words);
}

Value wordwrap_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("wordwrap", arguments,
                             {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  require_defined(input);
  if (!input.is_string()) {
    fail(Errc::BadInput, "wordwrap: expected a string, not {}", type_name(input));
  }
  WrapOptions options;
  const std::int64_t width = bound.integer_or(0, 79);
  if (width <= 0) fail(Errc::BadInput, "wordwrap: the width must be greater than 0");
  options.width = static_cast<std::size_t>(width);
  options.break_long_words = bound.flag(1, true);
  options.break_on_hyphens = bound.flag(3, true);
  const MarkedString line_end = bound.given(2) ? bound.text(2) : MarkedString("\n", Origin::Markup);
  TextBuilder out(runtime);
  bool first = true;
  for (const MarkedString& line : split_lines(runtime, input.text(), false)) {
    if (!first) out.append(line_end);
    first = false;
    bool first_piece = true;
    for (const MarkedString& piece : wrap_line(runtime, line, options)) {
      if (!first_piece) out.append(line_end);
      first_piece = false;
      out.append(piece);
    }
  }
  return out.value();
}

Value format_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail(Errc::BadInput, "format: positional and keyword arguments at the same time");
  }
  const Value format = soft_string(runtime, input);
  if (arguments.named.empty()) {
    return percent_format(runtime, format, runtime.tuple(arguments.positional));
  }
  const Ref<DictObject> named = runtime.new_dict();
  for (const auto& [name, value] : arguments.named) named->set(runtime.string(name), value);
  return percent_format(runtime, format, Value::object(Kind::Dict, named));
}

constexpr std::array<FilterEntry, 13> kTextFilters = {{
    {"trim", trim_filter},
    {"string", string_filter},
    {"upper", case_filter<Case::Upper>},
    {"lower", case_filter<Case::Lower>},
    {"capitalize", capitalize_filter},
    {"title", title_filter},
    {"replace", replace_filter},
    {"indent", indent_filter},
    {"format", format_filter},
    {"center", center_filter},
    {"truncate", truncate_filter},
    {"wordcount", wordcount_filter},
    {"wordwrap", wordwrap_filter},
}};

}  // namespace

std::span<const FilterEntry> text_filters() {
  return kTextFilters;
}

}  // namespace moeflux::jinja
