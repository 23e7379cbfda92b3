#include "text/grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace moeflux {
namespace {

enum class Shape : std::uint8_t {
  Any,
  Schema,
  Schemas,  // a list, not empty
  SchemaMap,
  Types,
  Names,
  NameLists,  // an object of lists of names
  Text,
  Number,
  Positive,  // a number above 0
  Count,
  Flag,
  NumberOrFlag,
  List,
  SchemaOrList,
  MapOrLists,
};

struct Keyword {
  std::string_view name;
  Shape shape;
  // The type it is about; Null for those about any type.
  JsonType about = JsonType::Null;
};

constexpr auto kKeywords = std::to_array<Keyword>({
    {"type", Shape::Types},
    {"nullable", Shape::Flag},
    {"enum", Shape::List},
    {"const", Shape::Any},
    {"anyOf", Shape::Schemas},
    {"oneOf", Shape::Schemas},
    {"allOf", Shape::Schemas},
    {"not", Shape::Schema},
    {"if", Shape::Schema},
    {"then", Shape::Schema},
    {"else", Shape::Schema},
    {"$ref", Shape::Text},
    {"$dynamicRef", Shape::Text},
    {"$recursiveRef", Shape::Text},
    {"properties", Shape::SchemaMap, JsonType::Object},
    {"patternProperties", Shape::SchemaMap, JsonType::Object},
    {"additionalProperties", Shape::Schema, JsonType::Object},
    {"unevaluatedProperties", Shape::Schema, JsonType::Object},
    {"propertyNames", Shape::Schema, JsonType::Object},
    {"required", Shape::Names, JsonType::Object},
    {"dependentRequired", Shape::NameLists, JsonType::Object},
    {"dependentSchemas", Shape::SchemaMap, JsonType::Object},
    {"dependencies", Shape::MapOrLists, JsonType::Object},
    {"minProperties", Shape::Count, JsonType::Object},
    {"maxProperties", Shape::Count, JsonType::Object},
    {"items", Shape::SchemaOrList, JsonType::Array},
    {"prefixItems", Shape::Schemas, JsonType::Array},
    {"additionalItems", Shape::Schema, JsonType::Array},
    {"unevaluatedItems", Shape::Schema, JsonType::Array},
    {"contains", Shape::Schema, JsonType::Array},
    {"minContains", Shape::Count, JsonType::Array},
    {"maxContains", Shape::Count, JsonType::Array},
    {"minItems", Shape::Count, JsonType::Array},
    {"maxItems", Shape::Count, JsonType::Array},
    {"uniqueItems", Shape::Flag, JsonType::Array},
    {"minLength", Shape::Count, JsonType::String},
    {"maxLength", Shape::Count, JsonType::String},
    {"pattern", Shape::Text, JsonType::String},
    {"format", Shape::Text, JsonType::String},
    {"minimum", Shape::Number, JsonType::Number},
    {"maximum", Shape::Number, JsonType::Number},
    {"exclusiveMinimum", Shape::NumberOrFlag, JsonType::Number},
    {"exclusiveMaximum", Shape::NumberOrFlag, JsonType::Number},
    {"multipleOf", Shape::Positive, JsonType::Number},
});

const Keyword* find_keyword(std::string_view name) {
  const auto at = std::find_if(kKeywords.begin(), kKeywords.end(),
                               [&](const Keyword& k) { return k.name == name; });
  return at == kKeywords.end() ? nullptr : &*at;
}

constexpr std::array<std::string_view, 7> kTypeNames = {"object",  "array",   "string", "number",
                                                        "integer", "boolean", "null"};

std::optional<JsonType> type_named(const Json& name) {
  if (!name.is_string()) return std::nullopt;
  const auto at =
      std::find(kTypeNames.begin(), kTypeNames.end(), name.get_ref<const std::string&>());
  if (at == kTypeNames.end()) return std::nullopt;
  return static_cast<JsonType>(at - kTypeNames.begin());
}

void check_types(const Json& value, const SchemaPlace& place) {
  const auto check_one = [&](const Json& name) {
    if (type_named(name) || name == "any") return;
    place.bad(
        fmt::format("{} is not a type (object, array, string, number, integer, boolean, null)",
                    dump_json(name)));
  };
  if (!value.is_array()) return check_one(value);
  for (const Json& name : value) check_one(name);
}

bool is_names(const Json& value) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const Json& name) { return name.is_string(); });
}

bool is_schema(const Json& value) {
  return value.is_object() || value.is_boolean();
}

// What the value should be; nothing when it is.
std::string_view wrong_shape(Shape shape, const Json& value) {
  const double number = value.is_number() ? value.get<double>() : -1.0;
  switch (shape) {
    case Shape::Any:
    case Shape::Types:
      return "";
    case Shape::Schema:
    case Shape::SchemaOrList:
      if (shape == Shape::SchemaOrList && value.is_array()) return "";
      return is_schema(value) ? "" : "a schema must be an object, true or false";
    case Shape::Schemas:
      return value.is_array() && !value.empty() ? "" : "expected a list of schemas";
    case Shape::SchemaMap:
      return value.is_object() ? "" : "expected an object of schemas";
    case Shape::MapOrLists:
      return value.is_object() &&
                     std::all_of(value.begin(), value.end(),
                                 [](const Json& one) { return !one.is_array() || is_names(one); })
                 ? ""
                 : "expected an object of schemas or lists of names";
    case Shape::Names:
      // Draft 3 had a boolean in each property: it says nothing here.
      return is_names(value) || value.is_boolean() ? "" : "expected a list of names";
    case Shape::NameLists:
      return value.is_object() && std::all_of(value.begin(), value.end(), is_names)
                 ? ""
                 : "expected an object of lists of names";
    case Shape::Text:
      return value.is_string() ? "" : "expected a string";
    case Shape::Number:
      return value.is_number() ? "" : "expected a number";
    case Shape::Positive:
      return number > 0 ? "" : "expected a number above 0";
    case Shape::Count:
      return number >= 0 && number == std::floor(number) ? ""
                                                         : "expected a whole number of 0 or more";
    case Shape::Flag:
      return value.is_boolean() ? "" : "expected true or false";
    case Shape::NumberOrFlag:
      return value.is_number() || value.is_boolean() ? "" : "expected a number";
    case Shape::List:
      return value.is_array() ? "" : "expected a list of values";
  }
  return "";
}

// `minimum: 5, exclusiveMinimum: true` as exclusiveMinimum: 5.
void modernize_bound(Json& schema, const char* bound, const char* exclusive) {
  const auto flag = schema.find(exclusive);
  if (flag == schema.end() || !flag->is_boolean()) return;
  const bool is_exclusive = flag->get<bool>();
  schema.erase(exclusive);
  if (!is_exclusive || !schema.contains(bound)) return;
  schema[exclusive] = schema[bound];
  schema.erase(bound);
}

void modernize_items(Json& schema) {
  const auto items = schema.find("items");
  const bool has_list = items != schema.end() && items->is_array();
  if (has_list) {
    const Json list = *items;
    schema.erase("items");
    if (!list.empty()) schema["prefixItems"] = list;
    if (schema.contains("additionalItems")) schema["items"] = schema["additionalItems"];
  }
  schema.erase("additionalItems");
}

void modernize_dependencies(Json& schema) {
  const auto found = schema.find("dependencies");
  if (found == schema.end()) return;
  const Json both = *found;
  schema.erase("dependencies");
  for (const auto& [name, value] : both.items()) {
    if (value.is_string()) {
      schema["dependentRequired"][name] = Json::array({value});
    } else {
      schema[value.is_array() ? "dependentRequired" : "dependentSchemas"][name] = value;
    }
  }
}

// OpenAPI's: null is one more type, and one more value of the list.
void modernize_nullable(Json& schema) {
  const bool nullable = schema.value("nullable", false);
  schema.erase("nullable");
  if (!nullable) return;
  if (const auto type = schema.find("type"); type != schema.end()) {
    Json types = type->is_array() ? *type : Json::array({*type});
    types.push_back("null");
    *type = types;
  }
  if (const auto values = schema.find("enum"); values != schema.end()) values->push_back(nullptr);
}

bool equal_numbers(const Json& a, const Json& b) {
  if (a.is_number_integer() && b.is_number_integer()) {
    if (a.is_number_unsigned() != b.is_number_unsigned()) {
      const Json& with_sign = a.is_number_unsigned() ? b : a;
      if (with_sign.get<std::int64_t>() < 0) return false;
    }
    return a.get<std::uint64_t>() == b.get<std::uint64_t>();
  }
  return a.get<double>() == b.get<double>();
}

}  // namespace

SchemaPlace SchemaPlace::operator/(std::string_view step) const {
  return {origin, path + "/" + pointer_step(step)};
}

std::string SchemaPlace::text() const {
  return origin + ": " + (path.empty() ? "/" : path);
}

void SchemaPlace::bad(std::string_view what) const {
  fail(Errc::BadInput, "{}: {}", text(), what);
}

std::string pointer_step(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

std::string_view type_name(JsonType type) {
  return kTypeNames[static_cast<std::size_t>(type)];
}

SchemaHolder schemas_in(std::string_view keyword) {
  if (keyword == "$defs" || keyword == "definitions") return SchemaHolder::Map;
  if (keyword == "contentSchema") return SchemaHolder::One;
  const Keyword* known = find_keyword(keyword);
  if (known == nullptr) return SchemaHolder::None;
  switch (known->shape) {
    case Shape::Schema:
      return SchemaHolder::One;
    case Shape::Schemas:
      return SchemaHolder::List;
    case Shape::SchemaMap:
      return SchemaHolder::Map;
    case Shape::SchemaOrList:
      return SchemaHolder::OneOrList;
    case Shape::MapOrLists:
      return SchemaHolder::MapOrLists;
    default:
      return SchemaHolder::None;
  }
}

void check_keyword(std::string_view keyword, const Json& value, const SchemaPlace& place) {
  const Keyword* known = find_keyword(keyword);
  if (known == nullptr) {
    if ((keyword == "$defs" || keyword == "definitions") && !value.is_object())
      (place / keyword).bad("expected an object of schemas");
    return;
  }
  if (known->shape == Shape::Types) return check_types(value, place / keyword);
  const std::string_view wrong = wrong_shape(known->shape, value);
  if (!wrong.empty()) (place / keyword).bad(wrong);
}

bool is_assertion(std::string_view keyword) {
  return find_keyword(keyword) != nullptr;
}

Json modern_schema(const Json& schema) {
  Json out = Json::object();
  for (const auto& [name, value] : schema.items()) {
    if (is_assertion(name)) out[name] = value;
  }
  modernize_bound(out, "minimum", "exclusiveMinimum");
  modernize_bound(out, "maximum", "exclusiveMaximum");
  modernize_items(out);
  modernize_dependencies(out);
  if (out.contains("const")) {
    const Json only = out["const"];
    if (out.contains("enum")) {
      Json& values = out["enum"];
      const bool listed = std::any_of(values.begin(), values.end(),
                                      [&](const Json& v) { return equal_values(v, only); });
      values = listed ? Json::array({only}) : Json::array();
    } else {
      out["enum"] = Json::array({only});
    }
    out.erase("const");
  }
  modernize_nullable(out);
  if (out.contains("required") && out["required"].is_boolean()) out.erase("required");
  if (const auto type = out.find("type"); type != out.end()) {
    const bool any = *type == "any" || (type->is_array() && std::find(type->begin(), type->end(),
                                                                      Json("any")) != type->end());
    if (any) out.erase("type");
  }
  // Base64 is what the value is, not only how it is written.
  if (schema.value("contentEncoding", Json()) == Json("base64") && !out.contains("format") &&
      !out.contains("pattern") && out.value("type", Json()) == Json("string")) {
    out["format"] = "base64";
  }
  return out;
}

JsonTypes all_types() {
  return {JsonType::Object, JsonType::Array,   JsonType::String,
          JsonType::Number, JsonType::Boolean, JsonType::Null};
}

JsonTypes types_of(const Json& schema) {
  JsonTypes types;
  if (const auto type = schema.find("type"); type != schema.end()) {
    const Json names = type->is_array() ? *type : Json::array({*type});
    for (const Json& name : names) {
      if (const auto known = type_named(name)) types.insert(*known);
    }
  } else {
    for (const Keyword& keyword : kKeywords) {
      if (keyword.about != JsonType::Null && schema.contains(keyword.name)) {
        types.insert(keyword.about);
      }
    }
    if (types.empty()) types = all_types();
  }
  if (types.contains(JsonType::Number)) types.erase(JsonType::Integer);
  return types;
}

JsonType type_of_value(const Json& value) {
  if (value.is_object()) return JsonType::Object;
  if (value.is_array()) return JsonType::Array;
  if (value.is_string()) return JsonType::String;
  if (value.is_number_integer()) return JsonType::Integer;
  if (value.is_number()) {
    const double number = value.get<double>();
    return std::floor(number) == number ? JsonType::Integer : JsonType::Number;
  }
  return value.is_boolean() ? JsonType::Boolean : JsonType::Null;
}

bool has_type(const Json& value, const JsonTypes& types) {
  const JsonType type = type_of_value(value);
  return types.contains(type) || (type == JsonType::Integer && types.contains(JsonType::Number));
}

bool equal_values(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_array()) {
    return std::equal(a.begin(), a.end(), b.begin(), equal_values);
  }
  if (a.is_object()) {
    return std::all_of(a.items().begin(), a.items().end(), [&](const auto& member) {
      const auto other = b.find(member.key());
      return other != b.end() && equal_values(member.value(), *other);
    });
  }
  return a == b;
}

Json without(Json schema, std::string_view keyword) {
  schema.erase(std::string(keyword));
  return schema;
}

Json all_of(const Json& a, const Json& b) {
  if (a == b || b == Json(true)) return a;
  if (a == Json(true)) return b;
  if (a == Json(false) || b == Json(false)) return false;
  Json parts = Json::array();
  for (const Json* one : {&a, &b}) {
    if (one->size() == 1 && one->contains("allOf")) {
      for (const Json& part : (*one)["allOf"]) parts.push_back(part);
    } else {
      parts.push_back(*one);
    }
  }
  return {{"allOf", std::move(parts)}};
}

}  // namespace moeflux
