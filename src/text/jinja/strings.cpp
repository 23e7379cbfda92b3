#include "text/jinja/strings.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"

namespace moeflux::jinja {
namespace {

bool is_in(std::string_view characters, std::string_view character) {
  for (std::size_t at = 0; at < characters.size();) {
    const std::size_t size = decode(characters, at).size;
    if (characters.substr(at, size) == character) return true;
    at += size;
  }
  return false;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// Greek sigma at the end of a word has its own small letter.
bool is_final_sigma(std::string_view text, std::size_t at, std::size_t size) {
  const bool letter_before = at > 0 && is_alpha(decode_before(text, at).value);
  const bool letter_after = at + size < text.size() && is_alpha(decode(text, at + size).value);
  return letter_before && !letter_after;
}

// ---- formats

constexpr std::uint64_t kMaxPrecision = 1000;  // no number has more digits that matter

// How a format wants one value written.
struct FormatField {
  char align = '\0';   // '<', '^' or '>'; by the value
  bool zeros = false;  // pad with zeros behind the sign
  std::uint64_t width = 0;
  std::optional<std::uint64_t> precision;
  char conversion = '\0';  // s, r, d or f; by the value
};

// Reads digits at `at`; larger than any limit when there are too many of them.
std::uint64_t read_size(std::string_view text, std::size_t& at) {
  std::uint64_t size = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    size = std::min<std::uint64_t>(size * 10 + static_cast<std::uint64_t>(text[at] - '0'),
                                   std::uint64_t{1} << 40);
  }
  return size;
}

// Reads "[0][width][.precision]" at `at`.
void read_sizes(std::string_view text, std::size_t& at, FormatField& field) {
  field.zeros = text.substr(at).starts_with('0');
  field.width = read_size(text, at);
  if (!text.substr(at).starts_with('.')) return;
  field.precision = read_size(text, ++at);
}

[[noreturn]] void unsupported_format(std::string_view field) {
  fail(Errc::Unsupported, "the field '{}' of a format is not supported", field.substr(0, 80));
}

MarkedString convert(Runtime& runtime, const Value& value, const FormatField& field) {
  if (field.conversion != 'd' && field.conversion != 'f') {
    MarkedString text = field.conversion == 'r' ? to_repr(runtime, value) : to_text(runtime, value);
    if (!field.precision) return text;
    return text.substr(0, byte_of_character(text.view(), *field.precision));
  }
  require_defined(value);
  if (!value.is_number()) {
    fail(Errc::BadInput, "%{} format: a real number is required, not {}", field.conversion,
         type_name(value));
  }
  if (field.conversion == 'f') {
    const auto digits = static_cast<int>(std::min(field.precision.value_or(6), kMaxPrecision));
    return {fmt::format("{:.{}f}", value.as_real(), digits), value.origin()};
  }
  if (!(std::abs(value.as_real()) < 9.3e18)) {
    fail(Errc::BadInput, "cannot convert {} to an integer", float_repr(value.as_real()));
  }
  const std::int64_t integer =
      value.is_integral() ? value.as_int() : static_cast<std::int64_t>(value.as_real());
  return {fmt::format("{}", integer), value.origin()};
}

void append_padded(Runtime& runtime, const MarkedString& text, const FormatField& field, char align,
                   TextBuilder& out) {
  runtime.meter.text(text.size());
  const std::size_t length = count_characters(text.view());
  const std::uint64_t missing = field.width > length ? field.width - length : 0;
  if (field.align != '\0') align = field.align;
  const bool zeros = field.zeros && field.align == '\0' && align == '>';
  const std::size_t sign = zeros && text.view().starts_with('-') ? 1 : 0;
  const std::uint64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  out.append(text, 0, sign);
  out.fill(zeros ? "0" : " ", left, Origin::Markup);
  out.append(text, sign, text.size());
  out.fill(" ", missing - left, Origin::Markup);
}

// The arguments of one format, by place and by name.
class FormatArguments {
 public:
  explicit FormatArguments(const Arguments& arguments) : arguments_(arguments) {}

  const Value& next() { return at(n_used_++); }
  const Value& at(std::size_t index) const {
    if (index < arguments_.positional.size()) return arguments_.positional[index];
    fail(Errc::BadInput, "not enough arguments for format string");
  }
  const Value& named(std::string_view name) const {
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    fail(Errc::BadInput, "the format names '{}', which is not given", name);
  }
  bool all_used() const { return n_used_ >= arguments_.positional.size(); }

 private:
  const Arguments& arguments_;
  std::size_t n_used_ = 0;
};

// "(name)-05.2f" at `at`, after the percent sign.
void append_percent_field(Runtime& runtime, const Value& format, std::size_t& at,
                          FormatArguments& arguments, TextBuilder& out) {
  const std::string_view text = format.view();
  const std::size_t begin = at - 1;
  const Value* value = nullptr;
  if (text.substr(at).starts_with('(')) {
    const std::size_t end = std::min(text.find(')', at), text.size());
    value = &arguments.named(text.substr(at + 1, end - at - 1));
    at = std::min(end + 1, text.size());
  }
  FormatField field;
  if (text.substr(at).starts_with('-')) {
    field.align = '<';
    ++at;
  }
  read_sizes(text, at, field);
  field.conversion = at < text.size() ? text[at++] : '\0';
  if (field.conversion == 'i') field.conversion = 'd';
  if (std::string_view("srdf").find(field.conversion) == std::string_view::npos) {
    unsupported_format(text.substr(begin, at - begin));
  }
  if (value == nullptr) value = &arguments.next();
  MarkedString written = convert(runtime, *value, field);
  if (format.is_safe() && !value->is_safe()) written = html_escape(runtime, written);
  field.zeros = field.zeros && (field.conversion == 'd' || field.conversion == 'f');
  append_padded(runtime, written, field, '>', out);
}

// "name:<05.2f", the inside of braces.
void append_brace_field(Runtime& runtime, std::string_view text, FormatArguments& arguments,
                        TextBuilder& out) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view name = text.substr(0, colon);
  if (name.find_first_of(".[!{") != std::string_view::npos) unsupported_format(text);
  std::size_t digits = 0;
  const std::uint64_t index = read_size(name, digits);
  const Value& value = name.empty()            ? arguments.next()
                       : digits == name.size() ? arguments.at(index)
                                               : arguments.named(name);
  FormatField field;
  std::size_t at = std::min(colon + 1, text.size());
  if (at < text.size() && std::string_view("<^>").find(text[at]) != std::string_view::npos) {
    field.align = text[at++];
  }
  read_sizes(text, at, field);
  if (at < text.size()) field.conversion = text[at++];
  const bool known = std::string_view("sdf").find(field.conversion) != std::string_view::npos;
  const bool by_value = field.conversion == '\0' && !(field.precision && value.is_number());
  if (at != text.size() || (!known && !by_value)) unsupported_format(text);
  append_padded(runtime, convert(runtime, value, field), field, value.is_number() ? '>' : '<', out);
}

}  // namespace

std::size_t find_text(Runtime& runtime, std::string_view text, std::string_view wanted,
                      std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const std::string_view rest = text.substr(from);
  const void* found = ::memmem(rest.data(), rest.size(), wanted.data(), wanted.size());
  const std::size_t at =
      found == nullptr ? std::string_view::npos
                       : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  runtime.meter.text(found == nullptr ? rest.size() : at - from);
  return at;
}

std::size_t find_last_text(Runtime& runtime, std::string_view text, std::string_view wanted) {
  runtime.meter.step(1 + text.size() / 64 * (1 + wanted.size()));
  return text.rfind(wanted);
}

MarkedString strip(Runtime& runtime, const MarkedString& text, Side side,
                   const MarkedString* characters) {
  const std::string_view bytes = text.view();
  const auto strips = [&](std::size_t at, const CodePoint& c) {
    if (characters != nullptr) {
      runtime.meter.text(characters->size());
      return is_in(characters->view(), bytes.substr(at, c.size));
    }
    return c.valid && is_space(c.value);
  };
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  if (side != Side::Right) {
    while (begin < end) {
      const CodePoint c = decode(bytes, begin);
      if (!strips(begin, c)) break;
      begin += c.size;
    }
  }
  if (side != Side::Left) {
    while (end > begin) {
      const CodePoint c = decode_before(bytes, end);
      if (!strips(end - c.size, c)) break;
      end -= c.size;
    }
  }
  return text.substr(begin, end);
}

MarkedString change_case(Runtime& runtime, const MarkedString& text, Case wanted) {
  TextBuilder out(runtime);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text.bytes(), at);
    const bool sigma = wanted == Case::Lower && c.value == 0x3A3;
    if (!c.valid) {
      out.append(text, at, at + c.size);
    } else if (sigma && is_final_sigma(text.view(), at, c.size)) {
      out.append("\xCF\x82", text.origin_at(at));
    } else {
      out.append(to_case(c.value, wanted), text.origin_at(at));
    }
    at += c.size;
  }
  return out.take();
}

MarkedString capitalize(Runtime& runtime, const MarkedString& text) {
  if (text.empty()) return text;
  const std::size_t first = decode(text.bytes(), 0).size;
  MarkedString result = change_case(runtime, text.substr(0, first), Case::Title);
  result.append(change_case(runtime, text.substr(first), Case::Lower));
  return result;
}

MarkedString replace(Runtime& runtime, const MarkedString& text, const MarkedString& from,
                     const MarkedString& to, std::int64_t count) {
  TextBuilder out(runtime);
  std::size_t at = 0;
  while (count != 0 && at <= text.size()) {
    const std::size_t found = find_text(runtime, text.view(), from.view(), at);
    if (found == std::string::npos) break;
    // An empty pattern matches before every character and at the end.
    out.append(text, at, found);
    out.append(to);
    at = found + from.size();
    --count;
    if (from.empty()) {
      if (at == text.size()) return out.take();
      const std::size_t next = at + decode(text.bytes(), at).size;
      out.append(text, at, next);
      at = next;
    }
  }
  out.append(text, at, text.size());
  return out.take();
}

std::vector<MarkedString> split_lines(Runtime& runtime, const MarkedString& text, bool keep_ends) {
  runtime.meter.text(text.size());
  std::vector<MarkedString> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text.bytes(), at);
    std::size_t next = at + c.size;
    if (c.valid && is_line_end(c.value)) {
      if (c.value == U'\r' && next < text.size() && text.bytes()[next] == '\n') ++next;
      runtime.meter.step(4);
      runtime.meter.check_items(lines.size(), 2 * sizeof(MarkedString));
      lines.push_back(text.substr(begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

Value percent_format(Runtime& runtime, const Value& format, const Value& values) {
  Arguments given;
  if (values.is(Kind::Tuple)) {
    given.positional = values.as<SequenceObject>().items;
  } else if (values.is(Kind::Dict)) {
    for (const auto& [key, value] : values.as<DictObject>().entries()) {
      if (key.is_string()) given.named.emplace_back(key.text().bytes(), value);
    }
  } else {
    given.positional = {values};
  }
  FormatArguments arguments(given);
  TextBuilder out(runtime);
  const std::string_view text = format.view();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t percent = std::min(text.find('%', at), text.size());
    out.append(format.text(), at, percent);
    at = std::min(percent + 1, text.size());
    if (text.substr(at).starts_with('%')) {
      out.append("%");
      ++at;
    } else if (percent < text.size()) {
      append_percent_field(runtime, format, at, arguments, out);
    }
  }
  // Anything that can be indexed counts as a mapping, which need not be used.
  const bool indexable = values.is(Kind::List) || values.is(Kind::Range) || values.is_undefined();
  if (!arguments.all_used() && !indexable) {
    fail(Errc::BadInput, "not all arguments converted during string formatting");
  }
  return out.value(format.is_safe());
}

Value brace_format(Runtime& runtime, const Value& format, const Arguments& given) {
  FormatArguments arguments(given);
  TextBuilder out(runtime);
  const std::string_view text = format.view();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
    out.append(format.text(), at, brace);
    if (brace == text.size()) break;
    if (text.substr(brace + 1).starts_with(text[brace])) {
      out.append(format.text(), brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const std::size_t end = text.find('}', brace);
    if (end == brace || end == std::string_view::npos) {
      fail(Errc::BadInput, "a format has a brace without its other one");
    }
    append_brace_field(runtime, text.substr(brace + 1, end - brace - 1), arguments, out);
    at = end + 1;
  }
  return out.value(format.is_safe());
}

}  // namespace moeflux::jinja
