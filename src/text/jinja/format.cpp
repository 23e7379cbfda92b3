#include "text/jinja/format.h"

#include <cmath>

#include "base/error.h"
#include "text/jinja/access.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace moeflux::jinja {
namespace {

// ---- %

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& format, const Value& arguments)
      : runtime_(runtime),
        format_(format.text()),
        safe_(format.is_safe()),
        arguments_(arguments),
        out_(runtime) {
    if (arguments.is(Kind::Tuple)) {
      positional_ = arguments.as<SequenceObject>().items;
    } else {
      positional_ = {arguments};
    }
  }

  Value run() {
    const std::string& text = format_.bytes();
    std::size_t plain = 0;
    while (true) {
      const std::size_t percent = text.find('%', plain);
      if (percent == std::string::npos) break;
      out_.append(format_, plain, percent);
      at_ = percent + 1;
      convert();
      plain = at_;
    }
    out_.append(format_, plain, format_.size());
    // Anything that can be indexed counts as a mapping, which need not be used.
    const bool indexable = arguments_.is(Kind::Dict) || arguments_.is(Kind::List) ||
                           arguments_.is(Kind::Range) || arguments_.is_undefined();
    if (used_ < positional_.size() && !indexable) {
      fail(Errc::BadInput, "not all arguments converted during string formatting");
    }
    return out_.value(safe_);
  }

 private:
  char peek() const { return at_ < format_.size() ? format_.bytes()[at_] : '\0'; }

  const Value& next_argument() {
    if (used_ >= positional_.size()) {
      fail(Errc::BadInput, "not enough arguments for format string");
    }
    return positional_[used_++];
  }

  Value keyed_argument() {
    const std::size_t end = format_.bytes().find(')', at_);
    if (end == std::string::npos) fail(Errc::BadInput, "incomplete format key");
    const std::string_view key = format_.view().substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (!arguments_.is(Kind::Dict)) fail(Errc::BadInput, "format requires a mapping");
    const Value* value = arguments_.as<DictObject>().find(key);
    if (value == nullptr) fail(Errc::BadInput, "the format names '{}', which is not given", key);
    used_ = positional_.size();
    return *value;
  }

  std::int64_t star() {
    ++at_;
    const Value& value = next_argument();
    if (!value.is_integral()) fail(Errc::BadInput, "* wants int");
    return value.as_int();
  }

  void read_flags(FormatSpec& spec) {
    for (; std::string_view("#0- +").find(peek()) != std::string_view::npos && peek() != '\0';
         ++at_) {
      if (peek() == '#') spec.alternate = true;
      if (peek() == '-') spec.align = '<';
      if (peek() == '+') spec.sign = '+';
      if (peek() == ' ' && spec.sign != '+') spec.sign = ' ';
      if (peek() == '0' && spec.align == '\0') {
        spec.fill = U'0';
        spec.align = '=';
      }
    }
    if (spec.align == '<') spec.fill = U' ';
  }

  void convert() {
    if (peek() == '%') {
      ++at_;
      return out_.append("%");
    }
    std::optional<Value> keyed;
    if (peek() == '(') keyed = keyed_argument();
    FormatSpec spec;
    read_flags(spec);
    if (peek() == '*') {
      const std::int64_t width = star();
      if (width < 0) spec.align = '<';
      spec.width =
          width < 0 ? 0 - static_cast<std::uint64_t>(width) : static_cast<std::uint64_t>(width);
    } else {
      spec.width = read_width(format_.view(), at_);
    }
    if (peek() == '.') {
      ++at_;
      const auto precision = peek() == '*'
                                 ? static_cast<std::uint64_t>(std::max<std::int64_t>(star(), 0))
                                 : read_width(format_.view(), at_);
      spec.precision = static_cast<int>(std::min<std::uint64_t>(precision, 1u << 30));
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    if (peek() == '\0') fail(Errc::BadInput, "incomplete format");
    spec.type = format_.bytes()[at_++];
    write(keyed ? *keyed : next_argument(), spec);
  }

  void write(const Value& value, FormatSpec spec) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
        return write_text(value, spec);
      case 'c':
        return write_character(value, spec);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return write_number(value, spec);
      default:
        fail(Errc::BadInput, "unsupported format character '{}'", spec.type);
    }
  }

  void write_text(const Value& value, const FormatSpec& spec) {
    MarkedString text = spec.type == 's' ? to_text(runtime_, value) : to_repr(runtime_, value);
    if (safe_ && !value.is_safe()) text = html_escape(runtime_, text);
    if (spec.precision) {
      const auto keep = static_cast<std::size_t>(*spec.precision);
      text = text.substr(0, byte_of_character(text.view(), keep));
    }
    FormatSpec padding = spec;
    padding.fill = U' ';
    out_.append(pad(runtime_, text, padding, spec.align == '<' ? '<' : '>'));
  }

  void write_character(const Value& value, const FormatSpec& spec) {
    MarkedString text;
    if (value.is_integral()) {
      std::string character;
      append_utf8(character, static_cast<char32_t>(value.as_int() & 0x1FFFFF));
      text = {character, value.origin()};
    } else if (value.is_string() && count_characters(value.view()) == 1) {
      text = value.text();
    } else {
      fail(Errc::BadInput, "%c requires int or char");
    }
    out_.append(pad(runtime_, text, spec, spec.align == '<' ? '<' : '>'));
  }

  void write_number(const Value& value, FormatSpec spec) {
    require_defined(value);
    if (!value.is_number()) {
      fail(Errc::BadInput, "%{} format: a real number is required, not {}", spec.type,
           type_name(value));
    }
    Value number = value;
    if (spec.type == 'd' || spec.type == 'i' || spec.type == 'u') {
      spec.type = 'd';
      if (value.is(Kind::Float)) {
        if (!(std::abs(value.as_real()) < 9e18)) {
          fail(Errc::BadInput, "cannot convert {} to an integer", float_repr(value.as_real()));
        }
        number = Value::integer(static_cast<std::int64_t>(value.as_real()), value.origin());
      }
    } else if (!value.is_integral() &&
               std::string_view("xXo").find(spec.type) != std::string_view::npos) {
      fail(Errc::BadInput, "%{} format: an integer is required, not float", spec.type);
    }
    const MarkedString text(format_number(number, spec), value.origin());
    out_.append(pad(runtime_, text, spec, spec.align == '\0' ? '>' : spec.align));
  }

  Runtime& runtime_;
  const MarkedString& format_;
  const bool safe_;
  const Value& arguments_;
  std::vector<Value> positional_;
  std::size_t used_ = 0;
  std::size_t at_ = 0;
  TextBuilder out_;
};

// ---- {}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments)
      : runtime_(runtime), arguments_(arguments) {}

  MarkedString run(const MarkedString& format, int depth = 0) {
    if (depth > 1) fail(Errc::BadInput, "a format is nested too deep");
    TextBuilder out(runtime_);
    const std::string& text = format.bytes();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
      out.append(format, at, brace);
      if (brace == text.size()) break;
      if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
        out.append(format, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      if (text[brace] == '}') fail(Errc::BadInput, "single '}}' in a format");
      const std::size_t end = field_end(text, brace + 1);
      out.append(field(format.substr(brace + 1, end), depth));
      at = end + 1;
    }
    return out.take();
  }

 private:
  static std::size_t field_end(const std::string& text, std::size_t at) {
    int depth = 0;
    for (; at < text.size(); ++at) {
      if (text[at] == '{') ++depth;
      if (text[at] == '}' && depth-- == 0) return at;
    }
    fail(Errc::BadInput, "expected '}}' before the end of a format");
  }

  MarkedString field(const MarkedString& body, int depth) {
    const std::string& text = body.bytes();
    std::size_t name_end = 0;
    bool in_brackets = false;
    while (name_end < text.size() &&
           (in_brackets || (text[name_end] != ':' && text[name_end] != '!'))) {
      if (text[name_end] == '[') in_brackets = true;
      if (text[name_end] == ']') in_brackets = false;
      ++name_end;
    }
    Value value = lookup(text.substr(0, name_end));
    std::size_t at = name_end;
    if (at < text.size() && text[at] == '!') {
      const char conversion = at + 1 < text.size() ? text[at + 1] : '\0';
      if (conversion == 's') {
        value = runtime_.string(to_text(runtime_, value));
      } else if (conversion == 'r' || conversion == 'a') {
        value = runtime_.string(to_repr(runtime_, value));
      } else {
        fail(Errc::BadInput, "unknown conversion in a format");
      }
      at += 2;
    }
    if (at >= text.size()) return format_value(runtime_, value, {});
    if (text[at] != ':') fail(Errc::BadInput, "expected ':' in a format");
    const MarkedString spec = run(body.substr(at + 1), depth + 1);
    return format_value(runtime_, value, parse_format_spec(spec.view()));
  }

  Value lookup(const std::string& name) {
    const std::size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, first_end));
    for (std::size_t at = first_end; at < name.size();) {
      if (name[at] == '.') {
        const std::size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        value = get_attribute(runtime_, value, name.substr(at + 1, end - at - 1));
        at = end;
      } else {
        const std::size_t end = name.find(']', at);
        if (end == std::string::npos) fail(Errc::BadInput, "missing ']' in a format");
        const std::string key = name.substr(at + 1, end - at - 1);
        value = get_item(runtime_, value,
                         is_number(key) ? Value::integer(to_index(key)) : runtime_.string(key));
        at = end + 1;
      }
    }
    return value;
  }

  static bool is_number(const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  }
  static std::int64_t to_index(const std::string& digits) {
    std::size_t at = 0;
    return static_cast<std::int64_t>(read_width(digits, at));
  }

  Value argument(const std::string& name) {
    if (name.empty() || is_number(name)) {
      const std::size_t index = name.empty() ? next_++ : static_cast<std::size_t>(to_index(name));
      if (index >= arguments_.positional.size()) {
        fail(Errc::BadInput, "the format has no argument {}", index);
      }
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    fail(Errc::BadInput, "the format names '{}', which is not given", name);
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
};

}  // namespace

Value percent_format(Runtime& runtime, const Value& format, const Value& arguments) {
  return PercentFormatter(runtime, format, arguments).run();
}

Value brace_format(Runtime& runtime, const Value& format, const Arguments& arguments) {
  return runtime.string(BraceFormatter(runtime, arguments).run(format.text()), format.is_safe());
}

}  // namespace moeflux::jinja
