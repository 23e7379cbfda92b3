#include "text/grammar/schema_keywords.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr auto kAnnotations = std::to_array<std::string_view>(
    {"title", "description", "default", "examples", "example", "$schema", "$id", "$comment",
     "$defs", "definitions", "deprecated", "readOnly", "writeOnly", "$anchor", "$vocabulary",
     "discriminator", "externalDocs", "strict"});

struct Keyword {
  std::string_view name;
  // The type it is about; Null for those about any type.
  JsonType about = JsonType::Null;
};

constexpr auto kKeywords = std::to_array<Keyword>({
    {"type"},
    {"nullable"},
    {"enum"},
    {"const"},
    {"anyOf"},
    {"oneOf"},
    {"allOf"},
    {"$ref"},
    {"properties", JsonType::Object},
    {"required", JsonType::Object},
    {"additionalProperties", JsonType::Object},
    {"minProperties", JsonType::Object},
    {"maxProperties", JsonType::Object},
    {"items", JsonType::Array},
    {"prefixItems", JsonType::Array},
    {"minItems", JsonType::Array},
    {"maxItems", JsonType::Array},
    {"uniqueItems", JsonType::Array},
    {"minLength", JsonType::String},
    {"maxLength", JsonType::String},
    {"pattern", JsonType::String},
    {"format", JsonType::String},
    {"minimum", JsonType::Number},
    {"maximum", JsonType::Number},
    {"exclusiveMinimum", JsonType::Number},
    {"exclusiveMaximum", JsonType::Number},
    {"multipleOf", JsonType::Number},
});

const Keyword* find_keyword(std::string_view name) {
  const auto at = std::find_if(kKeywords.begin(), kKeywords.end(),
                               [&](const Keyword& k) { return k.name == name; });
  return at == kKeywords.end() ? nullptr : &*at;
}

JsonType type_named(const Json& name, const SchemaPlace& place) {
  static constexpr std::array<std::string_view, 7> kNames = {
      "object", "array", "string", "number", "integer", "boolean", "null"};
  if (name.is_string()) {
    const auto at = std::find(kNames.begin(), kNames.end(), name.get_ref<const std::string&>());
    if (at != kNames.end()) return static_cast<JsonType>(at - kNames.begin());
  }
  place.bad(fmt::format("{} is not a type (object, array, string, number, integer, boolean, null)",
                        dump_json(name)));
}

// A step of a JSON pointer: ~1 is /, ~0 is ~.
std::string pointer_step(std::string_view step) {
  std::string out;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '~' && i + 1 < step.size() && (step[i + 1] == '0' || step[i + 1] == '1')) {
      out += step[++i] == '0' ? '~' : '/';
    } else {
      out += step[i];
    }
  }
  return out;
}

}  // namespace

SchemaPlace SchemaPlace::operator/(std::string_view step) const {
  return {origin, path + "/" + std::string(step)};
}

std::string SchemaPlace::text() const {
  return origin + ": " + (path.empty() ? "/" : path);
}

void SchemaPlace::bad(std::string_view what) const {
  fail(Errc::BadInput, "{}: {}", text(), what);
}

void SchemaPlace::unsupported(std::string_view what) const {
  fail(Errc::Unsupported, "{}: {}", text(), what);
}

bool is_annotation(std::string_view keyword) {
  return keyword.starts_with("x-") ||
         std::find(kAnnotations.begin(), kAnnotations.end(), keyword) != kAnnotations.end();
}

void check_keywords(const Json& schema, const SchemaPlace& place) {
  if (schema.is_boolean()) return;
  if (!schema.is_object()) place.bad("a schema must be an object, true or false");
  for (const auto& [name, value] : schema.items()) {
    if (find_keyword(name) != nullptr || is_annotation(name)) continue;
    place.unsupported(fmt::format("the keyword \"{}\" is not supported", name));
  }
}

JsonTypes types_of(const Json& schema, const SchemaPlace& place) {
  JsonTypes types;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_array()) {
      for (const Json& name : *type) types.insert(type_named(name, place / "type"));
    } else {
      types.insert(type_named(*type, place / "type"));
    }
  } else {
    for (const Keyword& keyword : kKeywords) {
      if (keyword.about != JsonType::Null && schema.contains(keyword.name)) {
        types.insert(keyword.about);
      }
    }
    if (types.empty()) {
      types = {JsonType::Object, JsonType::Array,   JsonType::String,
               JsonType::Number, JsonType::Boolean, JsonType::Null};
    }
  }
  if (schema.value("nullable", Json(false)) == Json(true)) types.insert(JsonType::Null);
  if (types.contains(JsonType::Number)) types.erase(JsonType::Integer);
  return types;
}

JsonType type_of_value(const Json& value) {
  if (value.is_object()) return JsonType::Object;
  if (value.is_array()) return JsonType::Array;
  if (value.is_string()) return JsonType::String;
  if (value.is_number_integer()) return JsonType::Integer;
  if (value.is_number()) return JsonType::Number;
  return value.is_boolean() ? JsonType::Boolean : JsonType::Null;
}

bool has_type(const Json& value, const JsonTypes& types) {
  const JsonType type = type_of_value(value);
  return types.contains(type) || (type == JsonType::Integer && types.contains(JsonType::Number));
}

const Json& resolve_reference(const Json& root, const Json& reference, const SchemaPlace& place) {
  if (!reference.is_string()) place.bad("$ref must be a string");
  const auto& text = reference.get_ref<const std::string&>();
  if (!text.starts_with('#')) {
    place.unsupported(fmt::format("$ref \"{}\" points outside of the schema", text));
  }
  const Json* at = &root;
  std::string_view rest = std::string_view(text).substr(1);
  if (!rest.empty() && rest[0] != '/') {
    place.unsupported(fmt::format("$ref \"{}\" is not a path such as #/$defs/name", text));
  }
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string step = pointer_step(rest.substr(0, end));
    rest.remove_prefix(end);
    const Json* next = nullptr;
    if (at->is_object() && at->contains(step)) {
      next = &at->at(step);
    } else if (at->is_array() && !step.empty() && step.size() < 6 &&
               step.find_first_not_of("0123456789") == std::string::npos &&
               std::stoul(step) < at->size()) {
      next = &at->at(std::stoul(step));
    }
    if (next == nullptr) place.bad(fmt::format("$ref \"{}\" leads nowhere", text));
    at = next;
  }
  return *at;
}

Json without(Json schema, std::string_view keyword) {
  schema.erase(std::string(keyword));
  return schema;
}

}  // namespace moeflux
