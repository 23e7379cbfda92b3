#include "text/grammar/schema_generator.h"

#include <string>
#include <vector>

namespace moeflux::test {
namespace {

class Generator {
 public:
  explicit Generator(Random& random) : random_(random) {}

  Json run() {
    // References may lead to any of these, from anywhere: they must have values without them, and
    // not be one another.
    n_defs_ = static_cast<int>(random_.integer(0, 3));
    Json defs = Json::object();
    for (int i = 0; i < n_defs_; ++i) {
      Json inner = random_.chance(0.5) ? object(2) : array(2);
      defs[def_name(i)] = {{"anyOf", Json::array({scalar(), std::move(inner)})}};
    }
    Json root = random_.chance(0.8) ? object(3) : schema(3);
    if (root.is_boolean()) root = Json::object();
    root["$defs"] = defs;
    return root;
  }

 private:
  static std::string def_name(int i) { return "d/" + std::to_string(i); }

  template <class T>
  const T& pick(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(
        random_.integer(0, static_cast<std::int64_t>(values.size()) - 1))];
  }

  std::string name() {
    static const std::vector<std::string> names = {
        "a",    "ab",           "abc",          "name", "value", "items", "id",
        "kind", "\u00e4\u4e2d", "with space",   "q\"",  "b\\",   "n\n",   "",
        "x1",   "x2",           "x3_long_name", "A",    "tags",  "parent"};
    return pick(names);
  }

  Json schema(int depth) {
    if (depth <= 0) return scalar();
    switch (random_.integer(0, 11)) {
      case 10:
        return conditional(depth - 1);
      case 11:
        return record(depth - 1);
      case 0:
      case 1:
        return object(depth - 1);
      case 2:
      case 3:
        return array(depth - 1);
      case 4:
        return any_of(depth - 1);
      case 5:
        return one_of(depth - 1);
      case 6:
        return all_of(depth - 1);
      case 7:
        if (n_defs_ > 0) {
          return {{"$ref", "#/$defs/d~1" + std::to_string(random_.integer(0, n_defs_ - 1))}};
        }
        return random_.chance(0.3) ? Json(true) : Json::object();
      default:
        return scalar();
    }
  }

  Json scalar() {
    switch (random_.integer(0, 7)) {
      case 0:
        return {{"type", "boolean"}};
      case 1:
        return {{"type", Json::array({"null", "integer"})}, {"minimum", random_.integer(-99, 99)}};
      case 2:
        return integer();
      case 3:
        return number();
      case 4:
        return {{"enum",
                 Json::array({1, "two", nullptr, 3.5, true, Json::array({1, "x"}), "\u00fc\"\n"})}};
      case 5:
        return {{"const", pick(std::vector<Json>{"fixed", 7, false, Json{{"k", 1}}})}};
      default:
        return string();
    }
  }

  Json integer() {
    Json out = {{"type", "integer"}};
    if (random_.chance(0.2)) return {{"type", "integer"}, {"multipleOf", random_.integer(2, 60)}};
    if (random_.chance(0.1)) return {{"type", "integer"}, {"not", {{"enum", {3, 4, 12}}}}};
    const std::int64_t low = random_.integer(-2000, 2000), high = low + random_.integer(3, 5000);
    if (random_.chance(0.6)) out[random_.chance(0.5) ? "minimum" : "exclusiveMinimum"] = low;
    if (random_.chance(0.6)) out[random_.chance(0.5) ? "maximum" : "exclusiveMaximum"] = high;
    return out;
  }

  Json number() {
    Json out = {{"type", "number"}};
    const double low = static_cast<double>(random_.integer(-5000, 5000)) / 100;
    const double high = low + static_cast<double>(random_.integer(1, 3000)) / 8;
    if (random_.chance(0.6)) out[random_.chance(0.5) ? "minimum" : "exclusiveMinimum"] = low;
    if (random_.chance(0.6)) out[random_.chance(0.5) ? "maximum" : "exclusiveMaximum"] = high;
    if (random_.chance(0.1)) out["nullable"] = true;
    if (random_.chance(0.2))
      return {{"type", "number"}, {"multipleOf", pick<double>({0.01, 0.5, 2.5})}};
    return out;
  }

  Json string() {
    Json out = {{"type", "string"}};
    if (random_.chance(0.15)) {
      out["pattern"] = pick(std::vector<std::string>{"^(?!.*b)[a-d]{2,9}$", "^(?=.*\\d)[a-z\\d]+$",
                                                     "\\bof\\b", "^[\\w-]+$"});
      if (random_.chance(0.5)) out["allOf"] = Json::array({{{"pattern", "[aco]"}}});
      out["maxLength"] = random_.integer(9, 40);
      if (random_.chance(0.3)) out["not"] = {{"pattern", "zz"}};
      return out;
    }
    if (random_.chance(0.2)) {
      out["pattern"] = pick(std::vector<std::string>{"^[a-z]{2,6}$", "^\\d+(\\.\\d{2})?$", "x",
                                                     "^(foo|bar)*$", "^[A-Z][a-z]*( [A-Z][a-z]*)?$",
                                                     "[\"\\\\/]$", "^a|b$", "^[^a-y]{1,9}$"});
    } else if (random_.chance(0.25)) {
      out["format"] = pick(std::vector<std::string>{"date", "time", "date-time", "uuid", "email",
                                                    "ipv4", "hostname"});
    } else {
      const std::int64_t low = random_.integer(0, 12);
      if (random_.chance(0.5)) out["minLength"] = low;
      if (random_.chance(0.6)) out["maxLength"] = low + random_.integer(0, 30);
    }
    return out;
  }

  Json array(int depth) {
    Json out = {{"type", "array"}};
    if (random_.chance(0.3)) {
      out["prefixItems"] = Json::array();
      for (auto n = random_.integer(1, 3); n > 0; --n) out["prefixItems"].push_back(schema(depth));
    }
    if (random_.chance(0.8)) out["items"] = schema(depth);
    if (out.contains("items") && random_.chance(0.4)) out["minItems"] = random_.integer(0, 4);
    if (random_.chance(0.5)) out["maxItems"] = random_.integer(4, 8);
    if (random_.chance(0.1)) {
      return {
          {"type", "array"}, {"uniqueItems", true}, {"items", {{"enum", {"a", 1, true, nullptr}}}}};
    }
    if (random_.chance(0.1)) {
      return {{"type", "array"},
              {"items", {{"type", Json::array({"integer", "boolean"})}}},
              {"contains", {{"type", "boolean"}}},
              {"maxContains", random_.integer(1, 3)},
              {"maxItems", 6}};
    }
    return out;
  }

  // Members by the form of their names.
  Json record(int depth) {
    if (random_.chance(0.5)) {
      return {{"type", "object"},
              {"propertyNames", {{"pattern", "^[a-z]{1,4}$"}, {"not", {{"const", "no"}}}}},
              {"additionalProperties", schema(depth)}};
    }
    return {{"type", "object"},
            {"properties", {{"id", integer()}}},
            {"patternProperties",
             {{"^n_\\w{0,4}$", {{"type", "number"}}}, {"^[a-z]_s$", schema(depth)}}},
            {"additionalProperties", false},
            {"maxProperties", random_.integer(1, 4)}};
  }

  Json conditional(int depth) {
    Json out = {
        {"type", "object"},
        {"properties",
         {{"kind", {{"enum", {"a", "b", "c"}}}}, {"x", schema(depth)}, {"y", schema(depth)}}},
        {"required", {"kind"}}};
    if (random_.chance(0.5)) {
      out["if"] = {{"properties", {{"kind", {{"const", "a"}}}}}};
      out["then"] = {{"required", {"x"}}};
      if (random_.chance(0.5)) out["else"] = {{"not", {{"required", {"x"}}}}};
    }
    if (random_.chance(0.4)) out["dependentRequired"] = {{"x", {"y"}}};
    if (random_.chance(0.4)) out["unevaluatedProperties"] = false;
    return out;
  }

  Json object(int depth) {
    Json out = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
    for (auto n = random_.integer(0, 5); n > 0; --n) {
      const std::string key = name();
      if (out["properties"].contains(key)) continue;
      out["properties"][key] = schema(depth);
      if (random_.chance(0.5)) out["required"].push_back(key);
    }
    if (random_.chance(0.3)) {
      out["additionalProperties"] = random_.chance(0.5) ? Json(random_.chance(0.5)) : schema(depth);
    }
    if (out.value("additionalProperties", Json(false)) != Json(false) && random_.chance(0.2)) {
      out["required"].push_back("only_required");
    }
    return out;
  }

  Json any_of(int depth) {
    Json out = {{"anyOf", Json::array()}};
    for (auto n = random_.integer(1, 3); n > 0; --n) out["anyOf"].push_back(schema(depth));
    return out;
  }

  Json one_of(int depth) {
    if (random_.chance(0.5)) return {{"oneOf", Json::array({string(), integer(), array(depth)})}};
    Json out = {{"oneOf", Json::array()}};
    for (const char* kind : {"circle", "square"}) {
      Json branch = object(depth);
      branch["properties"]["kind"] = {{"const", kind}};
      Json required = Json::array({"kind"});
      for (const Json& key : branch["required"]) {
        if (key != "kind") required.push_back(key);
      }
      branch["required"] = required;
      out["oneOf"].push_back(branch);
    }
    return out;
  }

  // Of objects that do not contradict each other.
  Json all_of(int depth) {
    Json first = object(depth), second = object(depth);
    first.erase("additionalProperties");
    second.erase("additionalProperties");
    for (const auto& [key, unused] : first["properties"].items()) second["properties"].erase(key);
    Json required = Json::array();
    for (const Json& key : second["required"]) {
      if (second["properties"].contains(key.get<std::string>())) required.push_back(key);
    }
    second["required"] = required;
    return {{"allOf", Json::array({first, second})}};
  }

  Random& random_;
  int n_defs_ = 0;
};

}  // namespace

Json random_schema(Random& random) {
  return Generator(random).run();
}

}  // namespace moeflux::test
