// Damaged and hostile schemas: the compiler makes a grammar or throws Error, in bounded time, and
// what the grammar writes is JSON. MOEFLUX_MUTATIONS=100000 in the environment tries as many.
#include <chrono>
#include <cstdlib>

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/random.h"
#include "text/grammar/byte_automaton.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/schema_check.h"

namespace moeflux {
namespace {

using test::Random;

int n_mutations() {
  const char* wanted = std::getenv("MOEFLUX_MUTATIONS");
  return wanted == nullptr ? 2000 : std::atoi(wanted);
}

const std::vector<Json>& originals() {
  static const std::vector<Json> all = [] {
    std::vector<Json> out;
    for (
        const char* text : {
            R"({"type":"object","properties":{"a":{"type":"string","minLength":1,"maxLength":20,"pattern":"^(?!x)[a-z]+$","format":"email"},"b":{"$ref":"#/$defs/n"}},"required":["a"],"patternProperties":{"^x_":{"type":"integer"}},"additionalProperties":{"type":"boolean"},"propertyNames":{"maxLength":5},"minProperties":1,"maxProperties":4,"$defs":{"n":{"type":"number","multipleOf":0.5,"minimum":1,"exclusiveMaximum":9}}})",
            R"({"oneOf":[{"type":"array","prefixItems":[{"type":"string"}],"items":{"$ref":"#"},"contains":{"const":1},"maxContains":2,"minItems":1,"maxItems":5,"uniqueItems":true},{"type":"integer","not":{"enum":[1,2]}}],"if":{"type":"integer"},"then":{"minimum":3},"else":true})",
            R"({"$id":"http://x/y","$anchor":"top","allOf":[{"anyOf":[{"required":["a"]},{"required":["b"]}]},{"dependentRequired":{"a":["b"]},"dependentSchemas":{"b":{"properties":{"c":{"const":null}}}}}],"unevaluatedProperties":false,"properties":{"a":{"enum":["x",1,null]},"b":true,"c":false}})",
        })
      out.push_back(parse_json(text, "test"));
    return out;
  }();
  return all;
}

std::vector<Json*> all_parts(Json& json) {
  std::vector<Json*> out = {&json};
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!out[i]->is_structured()) continue;
    for (Json& part : *out[i]) out.push_back(&part);
  }
  return out;
}

Json any_value(Random& random) {
  static const std::vector<Json> values = {true,
                                           false,
                                           nullptr,
                                           0,
                                           -1,
                                           1,
                                           1e300,
                                           0.1,
                                           65536,
                                           "",
                                           "x",
                                           "(",
                                           "^(a+)+$",
                                           "#",
                                           "#/",
                                           "#top",
                                           "#/$defs/n",
                                           "string",
                                           "integer",
                                           Json::array(),
                                           Json::object(),
                                           Json::array({"a", "b"}),
                                           Json::array({true}),
                                           Json{{"type", "string"}},
                                           Json{{"$ref", "#"}},
                                           Json{{"not", Json::object()}}};
  return values[static_cast<std::size_t>(
      random.integer(0, static_cast<std::int64_t>(values.size()) - 1))];
}

std::string any_keyword(Random& random) {
  static const std::vector<std::string> names = {"type",
                                                 "enum",
                                                 "const",
                                                 "anyOf",
                                                 "oneOf",
                                                 "allOf",
                                                 "not",
                                                 "if",
                                                 "then",
                                                 "else",
                                                 "$ref",
                                                 "properties",
                                                 "required",
                                                 "items",
                                                 "prefixItems",
                                                 "additionalProperties",
                                                 "patternProperties",
                                                 "propertyNames",
                                                 "contains",
                                                 "minContains",
                                                 "maxContains",
                                                 "uniqueItems",
                                                 "multipleOf",
                                                 "minimum",
                                                 "maximum",
                                                 "pattern",
                                                 "format",
                                                 "minLength",
                                                 "maxLength",
                                                 "dependencies",
                                                 "$id",
                                                 "$anchor",
                                                 "$dynamicRef",
                                                 "unevaluatedProperties",
                                                 "unevaluatedItems",
                                                 "nullable",
                                                 "$schema"};
  return names[static_cast<std::size_t>(
      random.integer(0, static_cast<std::int64_t>(names.size()) - 1))];
}

void mutate(Json& schema, Random& random) {
  const std::vector<Json*> parts = all_parts(schema);
  const auto any_part = [&] {
    return parts[static_cast<std::size_t>(
        random.integer(0, static_cast<std::int64_t>(parts.size()) - 1))];
  };
  Json& part = *any_part();
  switch (random.integer(0, 3)) {
    case 0:
      part = any_value(random);
      break;
    case 1:
      part = Json(*any_part());
      break;
    case 2:
      if (part.is_object()) part[any_keyword(random)] = any_value(random);
      break;
    default:
      if (part.is_object()) part[any_keyword(random)] = Json(*any_part());
      break;
  }
}

TEST(SchemaMutations, CompileOrSayWhy) {
  int n_compiled = 0;
  const int n = n_mutations();
  for (int seed = 0; seed < n; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    Json schema = originals()[static_cast<std::size_t>(seed) % originals().size()];
    for (auto times = random.integer(1, 3); times > 0; --times) mutate(schema, random);
    const auto begin = std::chrono::steady_clock::now();
    try {
      const ByteAutomaton automaton = compile_grammar(json_schema_grammar(schema));
      EXPECT_LE(automaton.n_states(), kMaxGrammarStates);
      ++n_compiled;
    } catch (const Error& error) {
      EXPECT_FALSE(std::string(error.what()).empty());
    }
    try {
      find_schema_violation(schema, parse_json(R"({"a":"x","b":[1,{"c":null}]})", "value"));
    } catch (const Error&) {
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), 20.0) << schema.dump();
  }
  EXPECT_GT(n_compiled, n / 10);
  std::printf("%d of %d damaged schemas have a grammar\n", n_compiled, n);
}

TEST(SchemaMutations, HostileSchemasAreBounded) {
  const auto ends = [](const Json& schema) {
    const auto begin = std::chrono::steady_clock::now();
    std::string said;
    try {
      compile_grammar(json_schema_grammar(schema));
    } catch (const Error& error) {
      said = error.what();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), 30.0) << said;
    return said;
  };
  Json deep = true;
  for (int i = 0; i < 90; ++i) deep = {{"not", deep}};
  EXPECT_EQ(ends(deep), "");
  for (int i = 0; i < 100; ++i) deep = {{"not", deep}};
  EXPECT_NE(ends(deep).find("nested deeper"), std::string::npos);

  Json factors = {{"allOf", Json::array()}};  // 3^30 alternatives
  for (int i = 0; i < 30; ++i) {
    Json ways = Json::array();
    for (int j = 0; j < 3; ++j) {
      ways.push_back({{"required", Json::array({"p" + std::to_string(3 * i + j)})}});
    }
    factors["allOf"].push_back({{"anyOf", ways}});
  }
  EXPECT_EQ(ends(factors), "");  // noted, not multiplied

  Json doubling = {{"$defs", Json::object()}, {"$ref", "#/$defs/d0"}};
  for (int i = 0; i < 40; ++i) {
    const Json next = {{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
    doubling["$defs"]["d" + std::to_string(i)] = {
        {"allOf", Json::array({next, next, {{"minLength", i}}})}};
  }
  doubling["$defs"]["d40"] = {{"type", "string"}};
  EXPECT_NE(ends(doubling), "");

  EXPECT_EQ(
      ends({{"type", "string"}, {"pattern", "^(([a-z])+.)+[A-Z]([a-z])+$"}, {"maxLength", 400}}),
      "");
  EXPECT_EQ(ends({{"type", "string"}, {"pattern", "(a|b)*a(a|b){60}$"}, {"minLength", 61}}), "");
  EXPECT_EQ(ends({{"type", "integer"}, {"multipleOf", 999983}}), "");
  Json unique = {{"type", "array"}, {"uniqueItems", true}, {"items", {{"enum", Json::array()}}}};
  for (int i = 0; i < 1000; ++i) unique["items"]["enum"].push_back(i);
  EXPECT_EQ(ends(unique), "");
  Json patterns = {{"type", "object"}, {"patternProperties", Json::object()}};
  for (int i = 0; i < 40; ++i) {
    patterns["patternProperties"]["a{" + std::to_string(i + 1) + "}b"] = {{"minimum", i}};
  }
  EXPECT_EQ(ends(patterns), "");
  Json either = {{"oneOf", Json::array()}};
  for (int i = 0; i < 100; ++i) {
    either["oneOf"].push_back({{"properties", {{"p" + std::to_string(i), {{"type", "string"}}}}}});
  }
  ends(either);  // refused or noted
}

}  // namespace
}  // namespace moeflux
