#include "text/grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <functional>

#include "base/error.h"

namespace moeflux {
namespace {

// ---- keywords

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

// ---- conjunction

constexpr std::size_t kMaxProduct = 64;  // of alternatives

Json all_of(const Json& a, const Json& b) {
  if (a == b) return a;
  if (a == Json(true)) return b;
  if (b == Json(true)) return a;
  if (a == Json(false) || b == Json(false)) return false;
  return {{"allOf", Json::array({a, b})}};
}

class Conjunction {
 public:
  Conjunction(const Json& a, const Json& b, const SchemaPlace& place)
      : a_(a), b_(b), place_(place), out_(a) {}

  Json run() {
    for (const auto& [name, value] : b_.items()) {
      if (is_annotation(name)) continue;
      if (name == "properties" || name == "additionalProperties" || name == "type") continue;
      if (!a_.contains(name) || a_[name] == value) {
        out_[name] = value;
      } else {
        combine(name, a_[name], value);
      }
    }
    combine_types();
    combine_objects();
    return impossible_ ? Json(false) : out_;
  }

 private:
  void combine(const std::string& name, const Json& x, const Json& y) {
    static const std::vector<std::string> larger = {"minimum", "exclusiveMinimum", "minLength",
                                                    "minItems", "minProperties"};
    static const std::vector<std::string> smaller = {"maximum", "exclusiveMaximum", "maxLength",
                                                     "maxItems", "maxProperties"};
    const auto is_in = [&](const auto& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (is_in(larger)) {
      out_[name] = std::max(x, y);
    } else if (is_in(smaller)) {
      out_[name] = std::min(x, y);
    } else if (name == "required" && x.is_array() && y.is_array()) {
      for (const Json& item : y) {
        if (std::find(x.begin(), x.end(), item) == x.end()) out_[name].push_back(item);
      }
    } else if (name == "enum" && x.is_array() && y.is_array()) {
      out_[name] = Json::array();
      for (const Json& item : x) {
        if (std::find(y.begin(), y.end(), item) != y.end()) out_[name].push_back(item);
      }
    } else if (name == "const") {
      impossible_ = true;
    } else if (name == "items") {
      out_[name] = all_of(x, y);
    } else if (name == "nullable") {
      out_[name] = false;
    } else if (name == "uniqueItems") {
      out_[name] = true;
    } else if (name == "anyOf" && x.is_array() && y.is_array()) {
      combine_alternatives(x, y);
    } else {
      place_.unsupported(
          fmt::format("\"{}\" twice with different values in one conjunction", name));
    }
  }

  void combine_alternatives(const Json& x, const Json& y) {
    if (x.size() * y.size() > kMaxProduct) {
      place_.unsupported(fmt::format("more than {} combinations of anyOf", kMaxProduct));
    }
    out_["anyOf"] = Json::array();
    for (const Json& i : x) {
      for (const Json& j : y) out_["anyOf"].push_back(all_of(i, j));
    }
  }

  void combine_types() {
    if (!b_.contains("type")) return;
    if (!a_.contains("type")) {
      out_["type"] = b_["type"];
      return;
    }
    // nullable belongs to its own schema: it is part of the types from here on.
    const auto list = [](const Json& type) { return type.is_array() ? type : Json::array({type}); };
    Json x = list(a_["type"]), y = list(b_["type"]);
    if (a_.value("nullable", Json(false)) == Json(true)) x.push_back("null");
    if (b_.value("nullable", Json(false)) == Json(true)) y.push_back("null");
    out_.erase("nullable");
    const auto has = [](const Json& types, const char* name) {
      return std::find(types.begin(), types.end(), Json(name)) != types.end();
    };
    Json both = Json::array();
    for (const Json& type : x) {
      if (has(y, type.is_string() ? type.get_ref<const std::string&>().c_str() : "")) {
        both.push_back(type);
      } else if ((type == "integer" && has(y, "number")) ||
                 (type == "number" && has(y, "integer"))) {
        both.push_back("integer");
      }
    }
    impossible_ = impossible_ || both.empty();
    out_["type"] = both;
  }

  // A property that only one of them names is for the other an additional one.
  void combine_objects() {
    const auto others = [](const Json& schema) {
      return schema.value("additionalProperties", Json(true));
    };
    const auto names_in = [](const Json& schema) {
      return schema.value("properties", Json::object());
    };
    if (!b_.contains("properties") && !b_.contains("additionalProperties")) return;
    const Json x = names_in(a_), y = names_in(b_);
    if (!x.is_object() || !y.is_object()) place_.bad("\"properties\" must be an object");
    Json properties = Json::object();
    for (const auto& [name, value] : x.items()) {
      properties[name] = all_of(value, y.contains(name) ? y[name] : others(b_));
    }
    for (const auto& [name, value] : y.items()) {
      if (!x.contains(name)) properties[name] = all_of(others(a_), value);
    }
    out_["properties"] = properties;
    if (a_.contains("additionalProperties") || b_.contains("additionalProperties")) {
      out_["additionalProperties"] = all_of(others(a_), others(b_));
    }
  }

  const Json& a_;
  const Json& b_;
  const SchemaPlace& place_;
  Json out_;
  bool impossible_ = false;
};

// The values a schema is limited to, if it lists them.
std::optional<Json> listed_values(const Json& schema) {
  if (!schema.is_object()) return std::nullopt;
  if (schema.contains("const")) return Json::array({schema["const"]});
  if (schema.contains("enum") && schema["enum"].is_array()) return schema["enum"];
  return std::nullopt;
}

bool lists_are_disjoint(const Json& a, const Json& b) {
  const auto x = listed_values(a), y = listed_values(b);
  if (!x || !y) return false;
  return std::none_of(x->begin(), x->end(), [&](const Json& value) {
    return std::find(y->begin(), y->end(), value) != y->end();
  });
}

bool is_required(const Json& schema, const std::string& name) {
  const Json required = schema.value("required", Json::array());
  return std::find(required.begin(), required.end(), Json(name)) != required.end();
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
  if (text.size() > 1 && text[1] != '/') {
    place.unsupported(fmt::format("$ref \"{}\" is not a path such as #/$defs/name", text));
  }
  try {
    return root.at(Json::json_pointer(text.substr(1)));
  } catch (const Json::exception&) {
    place.bad(fmt::format("$ref \"{}\" leads nowhere", text));
  }
}

Json without(Json schema, std::string_view keyword) {
  schema.erase(std::string(keyword));
  return schema;
}

Json both_schemas(const Json& a, const Json& b, const SchemaPlace& place) {
  if (!a.is_object() || !b.is_object()) {
    if (a == Json(true)) return b;
    if (b == Json(true)) return a;
    if (a == Json(false) || b == Json(false)) return false;
    place.bad("a schema must be an object, true or false");
  }
  return Conjunction(a, b, place).run();
}

bool are_disjoint(const Json& a, const Json& b, const SchemaPlace& place) {
  if (a == Json(false) || b == Json(false)) return true;
  if (!a.is_object() || !b.is_object()) return false;
  for (const char* indirect : {"$ref", "anyOf", "oneOf", "allOf"}) {
    if (a.contains(indirect) || b.contains(indirect)) return false;
  }
  if (lists_are_disjoint(a, b)) return true;
  const auto typed = [](const Json& s) { return s.contains("type") || listed_values(s); };
  if (!typed(a) || !typed(b)) return false;
  const auto types = [&](const Json& schema) {
    JsonTypes out;
    if (schema.contains("type")) return types_of(schema, place);
    const Json values = *listed_values(schema);
    for (const Json& value : values) out.insert(type_of_value(value));
    return out;
  };
  const JsonTypes x = types(a), y = types(b);
  const auto numeric = [](JsonType t) { return t == JsonType::Number || t == JsonType::Integer; };
  const bool share_type = std::any_of(x.begin(), x.end(), [&](JsonType t) {
    return y.contains(t) || (numeric(t) && std::any_of(y.begin(), y.end(), numeric));
  });
  if (!share_type) return true;
  if (x != JsonTypes{JsonType::Object} || y != x) return false;
  const Json ours = a.value("properties", Json::object()),
             theirs = b.value("properties", Json::object());
  if (!ours.is_object() || !theirs.is_object()) return false;
  for (const auto& [name, schema] : ours.items()) {
    if (theirs.contains(name) && is_required(a, name) && is_required(b, name) &&
        lists_are_disjoint(schema, theirs[name])) {
      return true;
    }
  }
  return false;
}

}  // namespace moeflux
