#include "text/jinja/json_text.h"

#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "text/jinja/python_text.h"
#include "text/jinja/sorting.h"
#include "text/jinja/unicode.h"

namespace moeflux::jinja {
namespace {

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
    switch (c.value) {
      case U'"':
        quoted += "\\\"";
        return;
      case U'\\':
        quoted += "\\\\";
        return;
      case U'\n':
        quoted += "\\n";
        return;
      case U'\r':
        quoted += "\\r";
        return;
      case U'\t':
        quoted += "\\t";
        return;
      case U'\f':
        quoted += "\\f";
        return;
      case U'\b':
        quoted += "\\b";
        return;
      default:
        break;
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

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value);
  return writer.take();
}

}  // namespace moeflux::jinja
