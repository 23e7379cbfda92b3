#include "text/replies/reply_schema.h"

#include "text/replies/reply_json.h"

namespace moeflux {
namespace {

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
