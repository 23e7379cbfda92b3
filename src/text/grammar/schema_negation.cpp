// What a schema refuses, as a schema.
#include <algorithm>
#include <vector>

#include "text/grammar/schema_branches.h"

namespace moeflux {
namespace {

constexpr int kMaxNegationDepth = 12;
constexpr std::size_t kMaxListed = 24;  // numbers, each of which cuts the line once more

Json with_type(const char* type, const char* keyword, Json value) {
  return {{"type", type}, {keyword, std::move(value)}};
}

Json not_of(const char* type, const char* keyword, const Json& value) {
  return {{"type", type}, {"not", {{keyword, value}}}};
}

Json not_types(const Json& type) {
  const Json listed = type.is_array() ? type : Json::array({type});
  const auto has = [&](const char* name) {
    return std::find(listed.begin(), listed.end(), Json(name)) != listed.end();
  };
  Json others = Json::array();
  for (const JsonType other : all_types()) {
    const std::string name(type_name(other));
    if (!has(name.c_str()) && !(other == JsonType::Number && has("integer")))
      others.push_back(name);
  }
  Json out = {{"type", others}};
  if (!has("integer") || has("number")) return out;
  return {{"anyOf", Json::array({out, not_of("number", "multipleOf", 1)})}};
}

// All values but these; nothing when lists or objects are among them that have parts.
std::optional<Json> not_values(const Json& values) {
  Json strings = Json::array(), ways = Json::array();
  std::vector<Json> numbers;
  JsonTypes whole = all_types();  // of which nothing is listed
  bool has_true = false, has_false = false;
  for (const Json& value : values) {
    const JsonType type = value.is_number() ? JsonType::Number : type_of_value(value);
    whole.erase(type);
    if (value.is_structured() && !value.empty()) return std::nullopt;
    if (value.is_string()) strings.push_back(value);
    if (value.is_number()) numbers.push_back(value);
    has_true = has_true || value == Json(true);
    has_false = has_false || value == Json(false);
  }
  Json others = Json::array();
  for (const JsonType type : whole) others.push_back(type_name(type));
  if (!others.empty()) ways.push_back({{"type", others}});
  if (!strings.empty()) ways.push_back(not_of("string", "enum", strings));
  if (!whole.contains(JsonType::Boolean) && has_true != has_false) {
    ways.push_back({{"enum", Json::array({!has_true})}});
  }
  if (!whole.contains(JsonType::Array)) ways.push_back(with_type("array", "minItems", 1));
  if (!whole.contains(JsonType::Object)) ways.push_back(with_type("object", "minProperties", 1));
  if (numbers.size() > kMaxListed) return std::nullopt;
  std::sort(numbers.begin(), numbers.end(),
            [](const Json& a, const Json& b) { return a.get<double>() < b.get<double>(); });
  for (std::size_t i = 0; i <= numbers.size() && !numbers.empty(); ++i) {
    Json between = {{"type", "number"}};
    if (i > 0) between["exclusiveMinimum"] = numbers[i - 1];
    if (i < numbers.size()) between["exclusiveMaximum"] = numbers[i];
    ways.push_back(between);
  }
  if (ways.empty()) return Json(false);
  return Json{{"anyOf", ways}};
}

// A count one below or above; nothing when every value has it.
std::optional<Json> count(const char* type, const char* keyword, const Json& limit, int step) {
  const double other = limit.get<double>() + step;
  if (other < 0) return std::nullopt;
  return with_type(type, keyword, static_cast<std::uint64_t>(other));
}

}  // namespace

std::optional<Json> SchemaBranches::negation(const Json& schema, int depth) {
  if (schema.is_boolean()) return Json(schema == Json(false));
  if (depth > kMaxNegationDepth) return std::nullopt;
  const bool alone = schema.contains("$refAlone");
  const Json own = alone ? Json{{"$ref", schema["$ref"]}} : modern_schema(schema);
  std::vector<Json> ways;  // any of them makes a value refused
  bool known = true;
  const auto add = [&](const std::optional<Json>& way) {
    known = known && way.has_value();
    if (way) ways.push_back(*way);
  };
  const auto inner = [&](const Json& part) { return negation(part, depth + 1); };
  const auto add_if_any = [&](const std::optional<Json>& way) {
    if (way) ways.push_back(*way);
  };
  // All of them at once.
  const auto add_all = [&](const std::vector<std::optional<Json>>& parts) {
    Json all = true;
    for (const auto& part : parts) {
      known = known && part.has_value();
      if (part) all = all_of(all, *part);
    }
    ways.push_back(all);
  };
  const auto has = [&](const char* name) { return own.contains(name); };
  for (const auto& [name, value] : own.items()) {
    if (name == "$ref") {
      add(inner(document_.at(value.get<std::string>())));
    } else if (name == "allOf") {
      for (const Json& part : value) add(inner(part));
    } else if (name == "anyOf" || name == "oneOf") {
      std::vector<std::optional<Json>> none;
      for (const Json& part : value) none.push_back(inner(part));
      add_all(none);
      for (std::size_t i = 0; i < value.size() && name == "oneOf"; ++i) {
        for (std::size_t j = 0; j < i; ++j) ways.push_back(all_of(value[j], value[i]));
      }
      if (name == "oneOf" && value.size() > 4) known = false;
    } else if (name == "not") {
      ways.push_back(value);
    } else if (name == "if") {
      if (has("then")) add_all({value, inner(own["then"])});
      if (has("else")) add_all({inner(value), inner(own["else"])});
    } else if (name == "type") {
      ways.push_back(not_types(value));
    } else if (name == "enum") {
      add(not_values(value));
    } else if (name == "minimum" || name == "maximum") {
      ways.push_back(
          with_type("number", name == "minimum" ? "exclusiveMaximum" : "exclusiveMinimum", value));
    } else if (name == "exclusiveMinimum" || name == "exclusiveMaximum") {
      ways.push_back(
          with_type("number", name == "exclusiveMinimum" ? "maximum" : "minimum", value));
    } else if (name == "multipleOf") {
      ways.push_back(not_of("number", "multipleOf", value));
    } else if (name == "pattern") {
      ways.push_back(not_of("string", "pattern", value));
    } else if (name == "minLength") {
      add_if_any(count("string", "maxLength", value, -1));
    } else if (name == "maxLength") {
      add_if_any(count("string", "minLength", value, 1));
    } else if (name == "minItems") {
      add_if_any(count("array", "maxItems", value, -1));
    } else if (name == "maxItems") {
      add_if_any(count("array", "minItems", value, 1));
    } else if (name == "minProperties") {
      add_if_any(count("object", "maxProperties", value, -1));
    } else if (name == "maxProperties") {
      add_if_any(count("object", "minProperties", value, 1));
    } else if (name == "required") {
      for (const Json& member : value) {
        ways.push_back({{"type", "object"}, {"properties", {{member.get<std::string>(), false}}}});
      }
    } else if (name == "properties") {
      for (const auto& [member, part] : value.items()) {
        const auto refused_part = inner(part);
        known = known && refused_part.has_value();
        if (!refused_part || *refused_part == Json(false)) continue;
        ways.push_back({{"type", "object"},
                        {"required", Json::array({member})},
                        {"properties", {{member, *refused_part}}}});
      }
    } else if (name == "additionalProperties") {
      if (value == Json(false) && !has("properties") && !has("patternProperties")) {
        ways.push_back(with_type("object", "minProperties", 1));
      } else if (value != Json(true)) {
        known = false;
      }
    } else if (name == "prefixItems") {
      for (std::size_t i = 0; i < value.size(); ++i) {
        const auto refused_part = inner(value[i]);
        known = known && refused_part.has_value();
        if (!refused_part || *refused_part == Json(false)) continue;
        Json list(i, true);
        if (i == 0) list = Json::array();
        list.push_back(*refused_part);
        ways.push_back({{"type", "array"}, {"minItems", i + 1}, {"prefixItems", list}});
      }
    } else if (name == "items") {
      const std::size_t n_fixed = has("prefixItems") ? own["prefixItems"].size() : 0;
      if (value == Json(false)) {
        ways.push_back(with_type("array", "minItems", n_fixed + 1));
      } else if (n_fixed == 0) {
        const auto refused_part = inner(value);
        known = known && refused_part.has_value();
        if (refused_part && *refused_part != Json(false))
          ways.push_back(with_type("array", "contains", *refused_part));
      } else if (value != Json(true)) {
        known = false;
      }
    } else if (name == "contains") {
      const bool one =
          !has("maxContains") && (!has("minContains") || own["minContains"].get<double>() == 1.0);
      const auto refused_part = inner(value);
      known = known && one && refused_part.has_value();
      if (refused_part) ways.push_back(with_type("array", "items", *refused_part));
    } else if (name == "dependentRequired") {
      for (const auto& [member, needed] : value.items()) {
        for (const Json& other : needed) {
          ways.push_back({{"type", "object"},
                          {"required", Json::array({member})},
                          {"properties", {{other.get<std::string>(), false}}}});
        }
      }
    } else if (name == "dependentSchemas") {
      for (const auto& [member, part] : value.items()) {
        add_all({Json{{"type", "object"}, {"required", Json::array({member})}}, inner(part)});
      }
    } else if (name == "uniqueItems") {
      known = known && value == Json(false);
    } else if (name == "patternProperties" || name == "propertyNames" ||
               name == "unevaluatedProperties" || name == "unevaluatedItems") {
      known = false;
    }
  }
  if (!known) return std::nullopt;
  std::erase(ways, Json(false));
  if (ways.empty()) return Json(false);
  if (ways.size() == 1) return ways[0];
  return Json{{"anyOf", ways}};
}

}  // namespace moeflux
