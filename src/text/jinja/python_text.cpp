#include "text/jinja/python_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace moeflux::jinja {
namespace {

// ---- str and repr

// Writes repr() into a builder. Marks are decided for the whole text by the caller.
class ReprWriter {
 public:
  explicit ReprWriter(Runtime& runtime) : runtime_(runtime), out_(runtime) {}

  std::string take() { return std::string(out_.text().view()); }

  void write(const Value& value) {
    const DepthGuard guard(runtime_.meter);
    switch (value.kind()) {
      case Kind::Undefined:
        return out_.append("Undefined");
      case Kind::None:
        return out_.append("None");
      case Kind::Bool:
        return out_.append(value.as_bool() ? "True" : "False");
      case Kind::Int:
        return out_.append(fmt::format("{}", value.as_int()));
      case Kind::Float:
        return out_.append(float_repr(value.as_real()));
      case Kind::String:
        if (value.is_safe()) {
          return out_.append(fmt::format("Markup({})", string_repr(value.view())));
        }
        return out_.append(string_repr(value.view()));
      case Kind::List:
        return write_items("[", value.as<SequenceObject>().items, "]");
      case Kind::Tuple: {
        const auto& items = value.as<SequenceObject>().items;
        return write_items("(", items, items.size() == 1 ? ",)" : ")");
      }
      case Kind::Dict:
        return write_dict(value.as<DictObject>());
      case Kind::View:
        return write_view(value);
      case Kind::Range:
        return write_range(value.as<RangeObject>());
      case Kind::Namespace:
        out_.append("<Namespace ");
        write_dict(*value.as<NamespaceObject>().attributes);
        return out_.append(">");
      case Kind::Function:
        if (value.as<FunctionObject>().is_macro) {
          return out_.append(fmt::format("<Macro '{}'>", value.as<FunctionObject>().name));
        }
        return out_.append(fmt::format("<function {}>", value.as<FunctionObject>().name));
      case Kind::Loop: {
        auto& loop = value.as<LoopObject>();
        return out_.append(fmt::format("<LoopContext {}/{}>", loop.index0 + 1, loop.length()));
      }
      case Kind::Iterator:
        return out_.append(fmt::format("<{} object>", type_name(value)));
    }
  }

 private:
  void write_items(std::string_view open, const std::vector<Value>& items, std::string_view close) {
    out_.append(open);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i != 0) out_.append(", ");
      write(items[i]);
    }
    out_.append(close);
  }

  void write_dict(const DictObject& dict) {
    out_.append("{");
    for (std::size_t i = 0; i < dict.size(); ++i) {
      if (i != 0) out_.append(", ");
      write(dict.entries()[i].first);
      out_.append(": ");
      write(dict.entries()[i].second);
    }
    out_.append("}");
  }

  void write_view(const Value& value) {
    const auto& view = value.as<ViewObject>();
    out_.append(fmt::format("{}([", type_name(value)));
    const auto& entries = view.dict->entries();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i != 0) out_.append(", ");
      if (view.what == ViewObject::What::Items) out_.append("(");
      if (view.what != ViewObject::What::Values) write(entries[i].first);
      if (view.what == ViewObject::What::Items) out_.append(", ");
      if (view.what != ViewObject::What::Keys) write(entries[i].second);
      if (view.what == ViewObject::What::Items) out_.append(")");
    }
    out_.append("])");
  }

  void write_range(const RangeObject& range) {
    out_.append(range.step == 1
                    ? fmt::format("range({}, {})", range.start, range.stop)
                    : fmt::format("range({}, {}, {})", range.start, range.stop, range.step));
  }

  Runtime& runtime_;
  TextBuilder out_;
};

bool any_data(Runtime& runtime, const std::vector<Value>& items) {
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& item) { return holds_data(runtime, item); });
}

bool any_data(Runtime& runtime, const DictObject& dict) {
  return std::any_of(dict.entries().begin(), dict.entries().end(), [&](const auto& entry) {
    return holds_data(runtime, entry.first) || holds_data(runtime, entry.second);
  });
}

// ---- JSON

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style)
      : runtime_(runtime), style_(style), out_(runtime) {}

  std::string take() { return std::string(out_.text().view()); }

  void write(const Value& value) {
    const DepthGuard guard(runtime_.meter);
    switch (value.kind()) {
      case Kind::None:
        return out_.append("null");
      case Kind::Bool:
        return out_.append(value.as_bool() ? "true" : "false");
      case Kind::Int:
        return out_.append(fmt::format("{}", value.as_int()));
      case Kind::Float:
        return out_.append(number(value.as_real()));
      case Kind::String:
        return write_string(value.view());
      case Kind::List:
      case Kind::Tuple:
        return write_list(value.as<SequenceObject>().items);
      case Kind::Dict:
        return write_dict(value.as<DictObject>());
      default:
        fail(Errc::BadInput, "Object of type {} is not JSON serializable{}{}", type_name(value),
             value.hint().empty() ? "" : ": ", value.hint());
    }
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  void new_line() {
    if (!style_.indent) return;
    out_.append("\n");
    out_.fill(*style_.indent, level_, Origin::Markup);
  }

  void separator(bool first) {
    if (!first) out_.append(style_.item_separator);
    new_line();
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) return out_.append("[]");
    out_.append("[");
    ++level_;
    bool first = true;
    for (const Value& item : items) {
      separator(first);
      first = false;
      write(item);
    }
    --level_;
    new_line();
    out_.append("]");
  }

  void write_dict(const DictObject& dict) {
    if (dict.size() == 0) return out_.append("{}");
    out_.append("{");
    ++level_;
    bool first = true;
    const auto write_entry = [&](const Value& key, const Value& value) {
      separator(first);
      first = false;
      write_key(key);
      out_.append(style_.key_separator);
      write(value);
    };
    if (style_.sort_keys) {
      std::vector<Value> keys;
      for (const auto& entry : dict.entries()) keys.push_back(entry.first);
      for (const Value& key : sorted(runtime_, keys, keys, false))
        write_entry(key, *dict.find(key));
    } else {
      for (const auto& [key, value] : dict.entries()) write_entry(key, value);
    }
    --level_;
    new_line();
    out_.append("}");
  }

  void write_key(const Value& key) {
    switch (key.kind()) {
      case Kind::String:
        return write_string(key.view());
      case Kind::None:
      case Kind::Bool:
      case Kind::Int:
      case Kind::Float:
        out_.append("\"");
        write(key);
        return out_.append("\"");
      default:
        fail(Errc::BadInput, "keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  void write_string(std::string_view text) {
    std::string quoted = "\"";
    quoted.reserve(text.size() + 2);
    for (std::size_t at = 0; at < text.size();) {
      std::size_t plain = at;
      while (plain < text.size() && is_plain(text[plain])) ++plain;
      quoted += text.substr(at, plain - at);
      at = plain;
      if (at == text.size()) break;
      const CodePoint c = decode(text, at);
      append_character(quoted, text.substr(at, c.size), c);
      at += c.size;
    }
    quoted += '"';
    out_.append(quoted);
  }

  // Bytes that stand for themselves in JSON.
  bool is_plain(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x7F || !style_.ensure_ascii);
  }

  void append_character(std::string& quoted, std::string_view bytes, const CodePoint& c) const {
    constexpr std::u32string_view kShort = U"\"\\\n\r\t\f\b";
    if (const std::size_t at = kShort.find(c.value); at != std::u32string_view::npos) {
      quoted += {'\\', "\"\\nrtfb"[at]};
      return;
    }
    const auto code = static_cast<std::uint32_t>(c.value);
    if (code < 0x20 || (style_.ensure_ascii && code >= 0x7F && code < 0x10000)) {
      quoted += fmt::format("\\u{:04x}", code);
    } else if (style_.ensure_ascii && code >= 0x10000) {
      const std::uint32_t rest = code - 0x10000;
      quoted += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      quoted += bytes;
    }
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  TextBuilder out_;
  std::uint64_t level_ = 0;
};

}  // namespace

std::string float_repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number,
                                 std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  const std::size_t e = text.find('e');
  int exponent = 0;
  const char* digits_of_exponent = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_exponent, text.data() + text.size(), exponent);

  std::string digits;
  std::string_view sign;
  for (const char c : text.substr(0, e)) {
    if (c == '-') sign = "-";
    if (c >= '0' && c <= '9') digits += c;
  }
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}{}{}{}e{}{:02}", sign, digits[0], digits.size() > 1 ? "." : "",
                       digits.substr(1), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) {
    return fmt::format("{}0.{:0>{}}{}", sign, "", -exponent - 1, digits);
  }
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return fmt::format("{}{:0<{}}.0", sign, digits, whole);
  return fmt::format("{}{}.{}", sign, digits.substr(0, whole), digits.substr(whole));
}

std::string string_repr(std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos;
  const char quote = single || text.find('"') != std::string_view::npos ? '\'' : '"';
  std::string result(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text, at);
    constexpr std::u32string_view kShort = U"\n\r\t";
    if (c.value == static_cast<char32_t>(quote) || c.value == U'\\') {
      result += {'\\', static_cast<char>(c.value)};
    } else if (const std::size_t found = kShort.find(c.value); found != kShort.npos) {
      result += {'\\', "nrt"[found]};
    } else if (c.valid && is_printable(c.value)) {
      result += text.substr(at, c.size);
    } else if (c.value < 0x100) {
      result += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(c.value));
    } else if (c.value < 0x10000) {
      result += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c.value));
    } else {
      result += fmt::format("\\U{:08x}", static_cast<std::uint32_t>(c.value));
    }
    at += c.size;
  }
  result += quote;
  return result;
}

bool holds_data(Runtime& runtime, const Value& value) {
  if (value.origin() == Origin::Data) return true;
  const DepthGuard guard(runtime.meter);
  runtime.meter.step();
  switch (value.kind()) {
    case Kind::String:
      return value.text().has_data();
    case Kind::List:
    case Kind::Tuple:
      return any_data(runtime, value.as<SequenceObject>().items);
    case Kind::Dict:
      return any_data(runtime, value.as<DictObject>());
    case Kind::View:
      return any_data(runtime, *value.as<ViewObject>().dict);
    case Kind::Namespace:
      return any_data(runtime, *value.as<NamespaceObject>().attributes);
    default:
      return false;
  }
}

MarkedString to_text(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return {};
  return to_repr(runtime, value);
}

MarkedString to_repr(Runtime& runtime, const Value& value) {
  ReprWriter writer(runtime);
  writer.write(value);
  return {writer.take(), holds_data(runtime, value) ? Origin::Data : Origin::Markup};
}

MarkedString html_escape(Runtime& runtime, const MarkedString& text) {
  TextBuilder out(runtime);
  std::size_t plain = 0;
  constexpr std::string_view kSpecial = "&<>'\"";
  constexpr std::string_view kEntities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  for (std::size_t at = 0; (at = text.view().find_first_of(kSpecial, at)) != std::string::npos;) {
    out.append(text, plain, at);
    out.append(kEntities[kSpecial.find(text.bytes()[at])], text.origin_at(at));
    plain = ++at;
  }
  out.append(text, plain, text.size());
  return out.take();
}

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value);
  return writer.take();
}

}  // namespace moeflux::jinja
