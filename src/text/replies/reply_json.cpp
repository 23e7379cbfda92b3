#include "text/replies/reply_json.h"

#include <fmt/format.h>

namespace moeflux {
namespace {

// ---- scanning

constexpr std::size_t kMaxDepth = 256;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

void append_json_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(c);
  if (byte < 0x20) {
    out += fmt::format("\\u{:04x}", byte);
  } else {
    out += c;
  }
}

// ---- values from text

// Schemas looked at for one parameter. They may refer to each other, in circles too.
constexpr int kMaxVisits = 1000;

unsigned type_named(const std::string& name) {
  if (name == "null") return kJsonNull;
  if (name == "boolean") return kJsonBoolean;
  if (name == "integer" || name == "number") return kJsonNumber;
  if (name == "string") return kJsonString;
  if (name == "array") return kJsonArray;
  if (name == "object") return kJsonObject;
  return kJsonAny;
}

unsigned type_of(const Json& value) {
  if (value.is_null()) return kJsonNull;
  if (value.is_boolean()) return kJsonBoolean;
  if (value.is_number()) return kJsonNumber;
  if (value.is_string()) return kJsonString;
  if (value.is_array()) return kJsonArray;
  return kJsonObject;
}

// The place "#/$defs/name" points to.
const Json* resolve(const Json& root, std::string_view reference) {
  if (reference == "#") return &root;
  if (!reference.starts_with("#/")) return nullptr;
  reference.remove_prefix(1);
  try {
    const Json::json_pointer pointer{std::string(reference)};
    return root.contains(pointer) ? &root.at(pointer) : nullptr;
  } catch (const Json::exception&) {
    return nullptr;
  }
}

unsigned types_of(const Json& schema, const Json& root, int& visits);

unsigned types_of_type(const Json& type) {
  if (type.is_string()) return type_named(type.get_ref<const std::string&>());
  unsigned types = 0;
  if (type.is_array()) {
    for (const Json& one : type) {
      types |= one.is_string() ? type_named(one.get_ref<const std::string&>()) : kJsonAny;
    }
  }
  return types == 0 ? kJsonAny : types;
}

unsigned types_of_any(const Json& alternatives, const Json& root, int& visits) {
  if (!alternatives.is_array() || alternatives.empty()) return kJsonAny;
  unsigned types = 0;
  for (const Json& one : alternatives) types |= types_of(one, root, visits);
  return types;
}

unsigned types_of(const Json& schema, const Json& root, int& visits) {
  if (!schema.is_object() || --visits < 0) return kJsonAny;
  unsigned types = kJsonAny;
  for (const auto& [key, value] : schema.items()) {
    if (key == "type") {
      types &= types_of_type(value);
    } else if (key == "const") {
      types &= type_of(value);
    } else if (key == "enum" && value.is_array() && !value.empty()) {
      unsigned listed = 0;
      for (const Json& one : value) listed |= type_of(one);
      types &= listed;
    } else if (key == "anyOf" || key == "oneOf") {
      types &= types_of_any(value, root, visits);
    } else if (key == "allOf" && value.is_array()) {
      for (const Json& one : value) types &= types_of(one, root, visits);
    } else if (key == "$ref" && value.is_string()) {
      const Json* target = resolve(root, value.get_ref<const std::string&>());
      if (target != nullptr) types &= types_of(*target, root, visits);
    }
  }
  return types == 0 ? kJsonAny : types;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// The text as JSON when it is a value of one of `types`; else "". Scanned rather than parsed, so
// that a number of many digits keeps them.
std::string as_json(std::string_view text, unsigned types) {
  if (text.empty()) return {};
  unsigned type = kJsonNumber;
  switch (text.front()) {
    case '{':
      type = kJsonObject;
      break;
    case '[':
      type = kJsonArray;
      break;
    case '"':
      type = kJsonString;
      break;
    case 't':
    case 'f':
      type = kJsonBoolean;
      break;
    case 'n':
      type = kJsonNull;
      break;
    default:
      break;
  }
  if ((types & type) == 0) return {};
  JsonScanner scanner;
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const JsonScanner::Step step = scanner.feed(text[i], out);
    if (step == JsonScanner::Step::Done) return i + 1 == text.size() ? out : std::string();
    if (step != JsonScanner::Step::More) return {};
  }
  // A number ends only when something else follows.
  std::string ignored;
  return scanner.feed(' ', ignored) == JsonScanner::Step::DoneBefore ? out : std::string();
}

}  // namespace

JsonScanner::Step JsonScanner::feed(char c, std::string& out) {
  switch (state_) {
    case State::Value:
      return is_blank(c) ? blank(c, out) : begin_value(c, out);
    case State::ArrayStart:
      if (is_blank(c)) return blank(c, out);
      return c == ']' ? close(c, out) : begin_value(c, out);
    case State::ObjectStart:
    case State::Key:
      if (is_blank(c)) return blank(c, out);
      if (c == '}' && state_ == State::ObjectStart) return close(c, out);
      if (c != '"') return Step::Bad;
      is_key_ = true;
      state_ = State::String;
      out += c;
      return Step::More;
    case State::Colon:
      if (is_blank(c)) return blank(c, out);
      if (c != ':') return Step::Bad;
      state_ = State::Value;
      out += c;
      return Step::More;
    case State::AfterValue:
      return after_value(c, out);
    case State::String:
    case State::Escape:
    case State::Hex:
      return string(c, out);
    case State::Literal:
      if (c != literal_.front()) return Step::Bad;
      literal_.remove_prefix(1);
      out += c;
      return literal_.empty() ? value_done() : Step::More;
    default:
      return number(c, out);
  }
}

JsonScanner::Step JsonScanner::blank(char c, std::string& out) const {
  out += c;
  return Step::More;
}

JsonScanner::Step JsonScanner::begin_value(char c, std::string& out) {
  switch (c) {
    case '{':
      return open(c, State::ObjectStart, out);
    case '[':
      return open(c, State::ArrayStart, out);
    case '"':
      is_key_ = false;
      state_ = State::String;
      break;
    case '-':
      state_ = State::Minus;
      break;
    case '0':
      state_ = State::Zero;
      break;
    case 't':
    case 'f':
    case 'n':
      literal_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
      state_ = State::Literal;
      break;
    default:
      if (!is_digit(c)) return Step::Bad;
      state_ = State::Integer;
  }
  out += c;
  return Step::More;
}

JsonScanner::Step JsonScanner::open(char c, State next, std::string& out) {
  if (open_.size() == kMaxDepth) return Step::Bad;
  open_.push_back(c);
  state_ = next;
  out += c;
  return Step::More;
}

JsonScanner::Step JsonScanner::close(char c, std::string& out) {
  open_.pop_back();
  out += c;
  return value_done();
}

JsonScanner::Step JsonScanner::value_done() {
  state_ = State::AfterValue;
  return open_.empty() ? Step::Done : Step::More;
}

JsonScanner::Step JsonScanner::after_value(char c, std::string& out) {
  if (is_blank(c)) return blank(c, out);
  const bool in_object = open_.back() == '{';
  if (c == (in_object ? '}' : ']')) return close(c, out);
  if (c != ',') return Step::Bad;
  state_ = in_object ? State::Key : State::Value;
  out += c;
  return Step::More;
}

JsonScanner::Step JsonScanner::string(char c, std::string& out) {
  if (state_ == State::Escape) {
    constexpr std::string_view kEscapes = "\"\\/bfnrtu";
    if (kEscapes.find(c) == std::string_view::npos) return Step::Bad;
    state_ = c == 'u' ? State::Hex : State::String;
    n_hex_ = 4;
  } else if (state_ == State::Hex) {
    if (!is_hex(c)) return Step::Bad;
    if (--n_hex_ == 0) state_ = State::String;
  } else if (c == '\\') {
    state_ = State::Escape;
  } else if (c == '"') {
    out += c;
    if (!is_key_) return value_done();
    state_ = State::Colon;
    return Step::More;
  } else if (static_cast<unsigned char>(c) < 0x20) {
    append_json_escaped(out, c);
    return Step::More;
  }
  out += c;
  return Step::More;
}

bool JsonScanner::number_may_end() const {
  return state_ == State::Zero || state_ == State::Integer || state_ == State::Fraction ||
         state_ == State::ExponentDigits;
}

// The state after one more byte of a number; `bad` when it cannot be part of it.
JsonScanner::State JsonScanner::number_after(char c, bool& bad) const {
  const bool whole = state_ == State::Zero || state_ == State::Integer;
  if (is_digit(c)) {
    switch (state_) {
      case State::Minus:
        return c == '0' ? State::Zero : State::Integer;
      case State::Integer:
        return State::Integer;
      case State::Point:
      case State::Fraction:
        return State::Fraction;
      case State::Exponent:
      case State::ExponentSign:
      case State::ExponentDigits:
        return State::ExponentDigits;
      default:
        break;
    }
  } else if (c == '.' && whole) {
    return State::Point;
  } else if ((c == 'e' || c == 'E') && (whole || state_ == State::Fraction)) {
    return State::Exponent;
  } else if ((c == '+' || c == '-') && state_ == State::Exponent) {
    return State::ExponentSign;
  }
  bad = true;
  return state_;
}

JsonScanner::Step JsonScanner::number(char c, std::string& out) {
  bool bad = false;
  const State next = number_after(c, bad);
  if (!bad) {
    state_ = next;
    out += c;
    return Step::More;
  }
  if (!number_may_end()) return Step::Bad;
  if (open_.empty()) return Step::DoneBefore;
  state_ = State::AfterValue;
  return after_value(c, out);
}

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) append_json_escaped(out, c);
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(out, text);
  out += '"';
  return out;
}

unsigned allowed_types(const Json& schema, const Json& root) {
  int visits = kMaxVisits;
  return types_of(schema, root, visits);
}

const Json& parameters_schema(const Json* function) {
  static const Json kNone = Json::object();
  if (function == nullptr) return kNone;
  const auto parameters = function->find("parameters");
  return parameters != function->end() && parameters->is_object() ? *parameters : kNone;
}

unsigned parameter_types(const Json& parameters, const std::string& name) {
  const auto properties = parameters.find("properties");
  if (properties == parameters.end() || !properties->is_object()) return kJsonAny;
  const auto property = properties->find(name);
  return property == properties->end() ? kJsonAny : allowed_types(*property, parameters);
}

std::string value_from_text(std::string_view text, unsigned types) {
  const std::string_view trimmed = trim(text);
  // Quotes belong to a string that is written without any, unless nothing says that it is one.
  const bool quotes_are_text = types != kJsonAny && (types & kJsonString) != 0;
  const unsigned readable = quotes_are_text ? types & ~kJsonString : types | kJsonString;
  std::string json = as_json(trimmed, readable);
  if (!json.empty()) return json;
  if (types != kJsonAny) {
    if (trimmed == "True" && (types & kJsonBoolean) != 0) return "true";
    if (trimmed == "False" && (types & kJsonBoolean) != 0) return "false";
    if (trimmed == "None" && (types & kJsonNull) != 0) return "null";
  }
  return json_string(text);
}

TextValueWriter::TextValueWriter(unsigned types)
    : types_(types),
      kind_(types == kJsonString                 ? Kind::String
            : types == (kJsonString | kJsonNull) ? Kind::StringOrNull
                                                 : Kind::Other) {}

std::string TextValueWriter::add(std::string_view text) {
  if (text.empty()) return {};
  if (kind_ != Kind::String) {
    buffered_ += text;
    const bool may_be_null = std::string_view("null").starts_with(buffered_) ||
                             std::string_view("None").starts_with(buffered_);
    if (kind_ == Kind::Other || may_be_null) return {};
    kind_ = Kind::String;
    text = buffered_;
  }
  std::string json;
  if (!quoted_) json += '"';
  quoted_ = true;
  append_json_escaped(json, text);
  return json;
}

std::string TextValueWriter::end() {
  if (kind_ != Kind::String) return value_from_text(buffered_, types_);
  return quoted_ ? "\"" : "\"\"";
}

std::string TextValueWriter::abandon() {
  return kind_ == Kind::String ? "" : buffered_;
}

}  // namespace moeflux
