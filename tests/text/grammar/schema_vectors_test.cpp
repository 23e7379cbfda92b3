// JSON schemas as zod, pydantic, LangChain and OpenAPI write them, of all drafts: which texts the
// grammar has, and that the check of complete documents says the same.
#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "text/grammar/grammar_support.h"
#include "text/grammar/schema_check.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::GrammarRun;

struct Vector {
  std::string schema;
  std::vector<std::string> yes, no;
  // What the grammar lets through and the check does not: the notes name the keyword.
  std::vector<std::string> checked = {};
  std::vector<std::string> notes = {};
};

void check(const std::vector<Vector>& vectors) {
  for (const Vector& test : vectors) {
    SCOPED_TRACE(test.schema);
    const Json schema = parse_json(test.schema, "test");
    const Grammar grammar = json_schema_grammar(schema);
    EXPECT_EQ(std::vector<std::string>(grammar.notes().begin(), grammar.notes().end()), test.notes);
    GrammarRun run(grammar);
    const auto violation = [&](const std::string& text) {
      return find_schema_violation(schema, parse_json(text, "value"));
    };
    for (const std::string& text : test.yes) {
      EXPECT_TRUE(run.accepts(text)) << "should accept: " << text;
      EXPECT_EQ(violation(text), std::nullopt) << text;
    }
    for (const std::string& text : test.no) {
      EXPECT_FALSE(run.accepts(text)) << "should refuse: " << text;
    }
    for (const std::string& text : test.checked) {
      EXPECT_TRUE(run.accepts(text)) << "the grammar should let through: " << text;
      EXPECT_NE(violation(text), std::nullopt) << text;
    }
  }
}

TEST(SchemaVectors, StringsOfZod) {
  check({
      {R"({"type":"string","format":"email","pattern":"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"})",
       {"\"ann@example.org\"", "\"a.b+c@x.y.de\""},
       {"\".a@example.org\"", "\"a..b@example.org\"", "\"ann@example\"", "\"ann\""}},
      {R"({"type":"string","format":"uuid","pattern":"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12})$"})",
       {"\"123e4567-e89b-42d3-a456-426614174000\""},
       {"\"123e4567-e89b-12d3-a456-426614174000\"", "\"123e4567\""}},
      {R"({"type":"string","minLength":3,"maxLength":9,"format":"includes","allOf":[{"pattern":"^a.*"},{"pattern":".*z$"},{"pattern":"m"}]})",
       {"\"amz\"", "\"a-m---z\""},
       {"\"az\"", "\"amy\"", "\"bmz\"", "\"a-m--------z\""}},
      {R"({"type":"string","format":"duration","pattern":"^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?(\\d+([.,]\\d+)?S)?)?)$"})",
       {"\"P3W\"", "\"P4DT2H\"", "\"PT5M\""},
       {"\"P\"", "\"PT\"", "\"P1W2D\""}},
      {R"({"type":"string","format":"base64","contentEncoding":"base64","pattern":"^$|^(?:[0-9a-zA-Z+/]{4})*(?:(?:[0-9a-zA-Z+/]{2}==)|(?:[0-9a-zA-Z+/]{3}=))?$"})",
       {"\"\"", "\"aGk=\""},
       {"\"aGk\"", "\"a-k=\""}},
      {R"({"type":"string","contentEncoding":"base64","contentMediaType":"image/png"})",
       {"\"aGk=\""},
       {"\"a%k=\""}},
      {R"({"type":"string","format":"mine","pattern":"^q+$"})", {"\"qq\""}, {"\"\"", "\"r\""}},
      {R"({"type":"string","format":"emoji","pattern":"^(?=[\\s\\S]*[\\p{Extended_Pictographic}])[\\p{Extended_Pictographic}\\p{Emoji_Component}]+$"})",
       {"\"\U0001F600\"", "\"1\U0001F600\""},
       {"\"1\"", "\"a\""}},
      {R"({"type":"string","pattern":"^\\p{Lu}\\p{L}*$"})",
       {"\"\u00c4rger\""},
       {"\"\u00e4rger\"", "\"A1\""}},
      {R"({"type":"string","pattern":"^((?!foo).)*$"})", {"\"fo of\"", "\"\""}, {"\"a foo\""}},
      {R"({"type":"string","pattern":"\\bcat\\b"})",
       {"\"cat\"", "\"a cat!\""},
       {"\"cats\"", "\"concat\""}},
      {R"({"type":"string","pattern":"^a+b*$","maxLength":4})",
       {"\"aabb\""},
       {"\"aabbb\"", "\"b\""}},
      {R"({"type":"string","pattern":"^(?=.*\\d)(?=.*[a-z]).{4,8}$"})",
       {"\"abc1\""},
       {"\"abcd\"", "\"1234\"", "\"a1\""}},
  });
}

TEST(SchemaVectors, WhatPatternsCannotSayIsChecked) {
  check({
      {R"({"type":"string","pattern":"^(a|b)\\1$"})", {"\"aa\""}, {"1"}, {}, {"/pattern"}},
      {R"({"type":"string","pattern":"(?<=a)b"})", {"\"ab\""}, {}, {}, {"/pattern"}},
      {R"({"type":"string","pattern":"(open"})", {"\"x\""}, {}, {}, {"/pattern"}},
      {R"({"type":"string","format":"unheard-of"})", {"\"x\""}, {}, {}, {"/format"}},
  });
}

TEST(SchemaVectors, RecordsAndNamesOfProperties) {
  check({
      {R"({"type":"object","propertyNames":{"type":"string"},"additionalProperties":{"type":"number"}})",
       {"{}", R"({"x":1,"y":2})"},
       {R"({"x":"1"})"}},
      {R"({"type":"object","propertyNames":{"type":"string","enum":["a","b"]},"additionalProperties":{"type":"number"},"required":["a","b"]})",
       {R"({"a":1,"b":2})"},
       {"{}", R"({"a":1})", R"({"a":1,"b":2,"c":3})"}},
      {R"({"type":"object","propertyNames":{"enum":["a","b"]},"additionalProperties":{"type":"number"}})",
       {"{}", R"({"b":2})", R"({"a":1,"b":2})"},
       {R"({"c":3})"}},
      {R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$","maxLength":3},"additionalProperties":{"type":"integer"}})",
       {R"({"ab":1})"},
       {R"({"AB":1})", R"({"abcd":1})", R"({"":1})"}},
      {R"({"type":"object","patternProperties":{"^x_":{"type":"number"}}})",
       {"{}", R"({"x_a":1})"},
       {R"({"x_a":"b"})", R"({"y":1})"}},
      {R"({"type":"object","properties":{"x_one":{"minimum":3}},"patternProperties":{"^x_":{"type":"integer"},"e$":{"maximum":9}},"additionalProperties":{"type":"boolean"}})",
       {R"({"x_one":4,"x_two":100,"rest":true})", R"({"x_e":9,"more":1.5})"},
       {R"({"x_one":2})", R"({"x_one":10})", R"({"x_e":10})", R"({"rest":1})", R"({"more":10})"}},
      {R"({"type":"object","patternProperties":{"^[a-c]$":{"type":"integer"}},"additionalProperties":false})",
       {R"({"a":1,"c":2})"},
       {R"({"d":1})", R"({"ab":1})"}},
      {R"({"type":"object","properties":{"a":{"not":{}}},"additionalProperties":false})",
       {"{}"},
       {R"({"a":1})"}},
  });
}

TEST(SchemaVectors, CountsOfProperties) {
  check({
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"additionalProperties":false,"minProperties":2})",
       {R"({"a":1,"b":2})", R"({"a":1,"c":3})", R"({"a":1,"b":2,"c":3})"},
       {"{}", R"({"b":2})"}},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"required":["c"],"additionalProperties":false,"maxProperties":2})",
       {R"({"c":3})", R"({"a":1,"c":3})", R"({"b":2,"c":3})"},
       {R"({"a":1,"b":2})", R"({"a":1,"b":2,"c":3})", "{}"}},
      {R"({"type":"object","properties":{"a":{"const":1}},"additionalProperties":{"type":"null"},"minProperties":1,"maxProperties":2})",
       {R"({"a":1})", R"({"x":null})", R"({"a":1,"x":null})"},
       {"{}", R"({"a":1,"x":null,"y":null})"}},
      {R"({"type":"object","minProperties":2,"maxProperties":2})",
       {R"({"a":1,"b":2})"},
       {"{}", R"({"a":1})"},
       {},  // a name that comes twice
       {"/minProperties"}},
  });
}

TEST(SchemaVectors, Arrays) {
  check({
      {R"({"type":"array","items":[{"type":"string"},{"type":"number"}],"additionalItems":false})",
       {"[]", R"(["a",1])"},
       {R"([1])", R"(["a",1,2])"}},
      {R"({"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"const":1}],"additionalItems":{"const":2},"minItems":1})",
       {"[1]", "[1,2,2]"},
       {"[]", "[2]", "[1,1]"}},
      {R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":1})",
       {R"(["c","a"])", R"(["a","b","c"])"},
       {"[]", R"(["a","a"])"}},
      {R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true})",
       {"[]", "[true, false]"},
       {"[true,true]"}},
      {R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})",
       {"[1,2]"},
       {"[\"a\"]"},
       {"[1,1]"},
       {"/uniqueItems"}},
      {R"({"type":"array","items":{"type":"integer"},"contains":{"minimum":10}})",
       {"[10]", "[1,20,3]"},
       {"[]", "[1,2]", "[\"a\",10]"}},
      {R"({"type":"array","items":{"enum":[1,2]},"contains":{"const":1},"minContains":2,"maxContains":2,"maxItems":4})",
       {"[1,1]", "[2,1,2,1]"},
       {"[1]", "[1,1,1]", "[1,1,2,2,2]"}},
      {R"({"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"integer"},"contains":{"const":7}})",
       {R"(["a",7])"},
       {R"(["a",1])", "[7]"}},
      {R"({"type":"array","prefixItems":[{"type":"string"},false]})",
       {"[]", "[\"a\"]"},
       {"[\"a\",1]"}},
  });
}

TEST(SchemaVectors, Multiples) {
  check({
      {R"({"type":"integer","multipleOf":5})", {"0", "-15", "1000005"}, {"3", "1.5"}},
      {R"({"type":"number","multipleOf":0.01})",
       {"0.25", "19.9", "-3", "2.500"},
       {"0.125", "0.001"}},
      {R"({"type":"number","multipleOf":0.75,"minimum":0,"maximum":3})",
       {"0", "0.75", "1.5", "2.25", "3"},
       {"0.5", "3.75", "-0.75"}},
      {R"({"type":"integer","multipleOf":7,"minimum":10,"maximum":30})",
       {"14", "21", "28"},
       {"7", "35", "15"}},
      {R"({"allOf":[{"type":"integer","multipleOf":4},{"multipleOf":6}]})",
       {"12", "-24"},
       {"4", "6"}},
      {R"({"type":"number","not":{"multipleOf":1}})", {"1.5", "-0.25"}, {"1", "2.0"}},
      {R"({"type":"number","multipleOf":0.123456789})",
       {"0.123456789"},
       {"\"a\""},
       {"1.5"},
       {"/multipleOf"}},
  });
}

TEST(SchemaVectors, OlderDraftsAndOpenApi) {
  check({
      {R"({"id":"http://x/y","type":"integer","minimum":3,"exclusiveMinimum":true,"maximum":5,"exclusiveMaximum":false})",
       {"4", "5"},
       {"3", "6"}},
      {R"({"$schema":"http://json-schema.org/draft-04/schema#","definitions":{"n":{"type":"integer"}},"type":"object","properties":{"a":{"$ref":"#/definitions/n"}},"required":["a"]})",
       {R"({"a":1})"},
       {"{}", R"({"a":"1"})"}},
      {R"({"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"n":{"type":"integer"}},"$ref":"#/definitions/n","minimum":5})",
       {"1"},
       {"\"a\""}},
      {R"({"$defs":{"n":{"type":"integer"}},"$ref":"#/$defs/n","minimum":5})", {"5"}, {"1"}},
      {R"({"type":"string","enum":["a","b"],"nullable":true})", {"\"a\"", "null"}, {"\"c\"", "1"}},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"dependencies":{"a":["b"]}})",
       {"{}", R"({"b":2})", R"({"a":1,"b":2})"},
       {R"({"a":1})"}},
      {R"({"type":"any"})", {"1", "[]"}, {""}},
  });
}

TEST(SchemaVectors, References) {
  check({
      {R"({"$ref":"#item","$defs":{"i":{"$anchor":"item","type":"integer"}}})", {"1"}, {"\"a\""}},
      {R"({"$id":"https://example.org/a/b.json","$defs":{"c":{"$id":"c.json","type":"integer"}},"items":{"$ref":"c.json"},"type":"array"})",
       {"[1]"},
       {"[\"a\"]"}},
      {R"({"$id":"https://example.org/root.json","$defs":{"c":{"$id":"/other/c.json","$defs":{"in":{"type":"null"}},"$ref":"#/$defs/in"}},"$ref":"https://example.org/other/c.json"})",
       {"null"},
       {"1"}},
      {R"({"properties":{"tilde~field":{"type":"integer"},"sl/ash":{"type":"boolean"},"per%cent":{"const":1},"a":{"$ref":"#/properties/tilde~0field"},"b":{"$ref":"#/properties/sl~1ash"},"c":{"$ref":"#/properties/per%25cent"}}})",
       {R"({"a":1,"b":true,"c":1})"},
       {R"({"a":true})", R"({"b":1})", R"({"c":2})"}},
      {R"({"prefixItems":[{"type":"integer"},{"$ref":"#/prefixItems/0"}],"type":"array","minItems":2})",
       {"[1,2]"},
       {"[1,\"a\"]"}},
      {R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["v"]}},"allOf":[{"$ref":"#/$defs/node"}],"title":"tree"})",
       {R"({"v":1,"kids":[{"v":2},{"v":3,"kids":[]}]})"},
       {R"({"kids":[]})", R"({"v":1,"kids":[{}]})"}},
      {R"({"$dynamicAnchor":"node","type":"object","properties":{"next":{"$dynamicRef":"#node"}}})",
       {"{}", R"({"next":{"next":{}}})"},
       {R"({"next":1})"}},
      {R"({"$ref":"https://example.org/elsewhere.json"})", {"1", "{}"}, {""}, {}, {"/$ref"}},
      {R"({"unknown":{"deep":{"type":"integer"}},"$ref":"#/unknown/deep"})", {"1"}, {"\"a\""}},
      {R"({"properties":{"$ref":{"type":"integer"}},"type":"object"})",
       {R"({"$ref":1})"},
       {R"({"$ref":"#"})"}},
  });
}

TEST(SchemaVectors, Combinations) {
  check({
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"not":{"required":["a","b"]}})",
       {"{}", R"({"a":1})", R"({"b":2})"},
       {R"({"a":1,"b":2})"}},
      {R"({"type":"string","not":{"enum":["no","never"]}})",
       {"\"yes\"", "\"nope\""},
       {"\"no\"", "\"never\""}},
      {R"({"type":"string","not":{"pattern":"^x"}})", {"\"ax\"", "\"\""}, {"\"x\"", "\"xa\""}},
      {R"({"type":["string","integer"],"not":{"type":"string"}})", {"1"}, {"\"a\""}},
      {R"({"type":"integer","not":{"const":5}})", {"4", "6"}, {"5"}},
      {R"({"oneOf":[{"type":"integer"},{"type":"number","minimum":2}]})",
       {"1", "2.5"},
       {"2", "1.5"}},
      {R"({"type":"object","properties":{"kind":{"enum":["a","b"]},"x":{"type":"integer"},"y":{"type":"integer"}},"required":["kind"],
           "if":{"properties":{"kind":{"const":"a"}},"required":["kind"]},"then":{"required":["x"]},"else":{"required":["y"]}})",
       {R"({"kind":"a","x":1})", R"({"kind":"b","y":1})", R"({"kind":"b","x":1,"y":1})"},
       {R"({"kind":"a"})", R"({"kind":"b","x":1})"}},
      {R"({"type":"object","properties":{"card":{"type":"string"},"address":{"type":"string"}},"dependentRequired":{"card":["address"]}})",
       {"{}", R"({"address":"a"})", R"({"card":"c","address":"a"})"},
       {R"({"card":"c"})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{}},"dependentSchemas":{"a":{"required":["b"],"properties":{"b":{"type":"string"}}}}})",
       {"{}", R"({"b":1})", R"({"a":1,"b":"x"})"},
       {R"({"a":1})", R"({"a":1,"b":1})"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"const":1}},"required":["a"]},{"type":"object","properties":{"b":{"const":2}},"required":["b"]}],"unevaluatedProperties":false})",
       {R"({"a":1,"b":2})"},
       {R"({"a":1,"b":2,"c":3})", R"({"a":1})"}},
      {R"({"type":"array","prefixItems":[{"const":1}],"unevaluatedItems":false})",
       {"[]", "[1]"},
       {"[1,2]"}},
      {R"({"allOf":[{"type":"string","pattern":"^a"},{"pattern":"b$"}],"anyOf":[{"maxLength":3},{"minLength":6}]})",
       {"\"ab\"", "\"axb\"", "\"axxxxb\""},
       {"\"axxb\"", "\"a\"", "\"b\""}},
      {R"({"enum":[1,2,3,"a"],"minimum":2})", {"2", "3", "\"a\""}, {"1"}},
      {R"({"anyOf":[true,false]})", {"1"}, {""}},
      {R"({"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}],"default":null,"description":"optional","$defs":{"a":{"type":"object","title":"A","properties":{"x":{"type":"integer","x-note":1,"examples":[1],"unknownKeyword":{}}},"required":["x"]}}})",
       {"null", R"({"x":1})"},
       {"1", "{}"}},
      {R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"},"not":{"uniqueItems":true}}},"required":["a"]})",
       {R"({"a":[1,1]})"},
       {R"({"a":1})"},
       {R"({"a":[1,2]})"},
       {"/properties/a/not"}},
  });
}

TEST(SchemaVectors, AsTheStandardReadsIt) {
  const auto run = [](const char* schema) {
    return GrammarRun(json_schema_grammar(parse_json(schema, "test"), {.as_standard = true}));
  };
  auto minimum = run(R"({"minimum": 5})");
  EXPECT_TRUE(minimum.accepts("\"a\""));
  EXPECT_FALSE(minimum.accepts("4"));
  auto open = run(R"({"properties": {"a": {"type": "integer"}}})");
  EXPECT_TRUE(open.accepts(R"({"a":1,"b":"c"})"));
  EXPECT_FALSE(open.accepts(R"({"a":"c"})"));
  auto fixed = run(R"({"prefixItems": [{"type": "integer"}]})");
  EXPECT_TRUE(fixed.accepts("[1,\"a\"]"));
  EXPECT_FALSE(fixed.accepts("[\"a\"]"));
}

TEST(SchemaVectors, OnlyWhatIsNoSchemaIsRefused) {
  const auto refuse = [](const std::string& schema, std::initializer_list<std::string_view> parts) {
    expect_error(Errc::BadInput, parts,
                 [&] { compile_grammar(json_schema_grammar(parse_json(schema, "test"))); });
  };
  refuse(R"({"$ref":"#/nowhere"})", {"leads nowhere"});
  refuse(R"({"$ref":"#/$defs/a","$defs":{"a":5}})", {"/$defs/a", "must be an object"});
  refuse(R"({"$ref":"#/title","title":"x"})", {"leads to what is no schema"});
  refuse(R"({"allOf":[{"$ref":"#"}]})", {"without end"});
  refuse(R"({"type":"integer","multipleOf":0})", {"/multipleOf", "above 0"});
  refuse(R"({"required":"a"})", {"/required", "list of names"});
  refuse(R"({"minLength":1.5})", {"/minLength", "whole number"});
  refuse(R"({"uniqueItems":1})", {"/uniqueItems"});
  refuse(R"({"pattern":5})", {"/pattern", "string"});
  refuse(R"({"enum":5})", {"/enum"});
  refuse(R"({"allOf":[{"type":"string"},{"type":"integer"}]})", {"no text matches"});
  refuse(R"({"enum":[]})", {"no text matches"});
}

}  // namespace
}  // namespace moeflux
