// JSON schemas: what each keyword accepts, and what a schema that cannot be kept says.
#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "text/grammar/grammar_support.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::GrammarRun;

struct Case {
  std::string schema;
  std::vector<std::string> yes, no;
};

void check(const std::vector<Case>& cases) {
  for (const Case& test : cases) {
    GrammarRun run(parse_json(test.schema, "test"));
    for (const std::string& text : test.yes) {
      EXPECT_TRUE(run.accepts(text)) << test.schema << "\nshould accept: " << text;
    }
    for (const std::string& text : test.no) {
      EXPECT_FALSE(run.accepts(text)) << test.schema << "\nshould refuse: " << text;
    }
  }
}

TEST(JsonSchema, Scalars) {
  check({
      {R"({"type": "boolean"})", {"true", "false"}, {"null", "True", "1"}},
      {R"({"type": "null"})", {"null"}, {"0", ""}},
      {R"({"type": "integer"})", {"0", "-12", "123456789012345678"}, {"1.0", "01", "+1", "1e3"}},
      {R"({"type": "number"})", {"0", "-1.5", "1e10", "2.5E-3"}, {".5", "1.", "01", "1e", "NaN"}},
      {R"({"type": ["string", "null"]})", {"\"a\"", "null"}, {"1", "nul"}},
      {R"({"type": "string", "nullable": true})", {"\"a\"", "null"}, {"1"}},
      {R"({"type": "integer", "minimum": 3, "maximum": 12})", {"3", "9", "12"}, {"2", "13", "-5"}},
      {R"({"type": "integer", "minimum": 1, "exclusiveMinimum": 4, "exclusiveMaximum": 7})",
       {"5", "6"},
       {"4", "7"}},
      {R"({"type": "number", "minimum": 0, "maximum": 1})", {"0", "0.25", "1"}, {"1.5", "-1"}},
      {R"({"type": "number", "multipleOf": 1})", {"3", "-4"}, {"3.5"}},
      {R"({"enum": ["a", 1, null, {"x": [1]}]})",
       {"\"a\"", "1", "null", R"({"x":[1]})"},
       {"\"b\""}},
      {R"({"type": "string", "enum": ["a", 1]})", {"\"a\""}, {"1"}},
      {R"({"const": "q\"\n"})", {R"("q\"\n")"}, {"\"q\""}},
      {R"({"minimum": 5})", {"5", "7.5"}, {"4", "\"a\""}},
  });
}

TEST(JsonSchema, Strings) {
  check({
      {R"({"type": "string"})",
       {R"("")", R"("a\n\"\\\/\u00e4\ud83d\ude00")", "\"\u00e4\U0001F600\""},
       {"\"a", "a\"", "\"\n\"", R"("\x")", R"("\ud83d")", R"("\ude00")", R"("\ud83dx")",
        "\"\xFF\""}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {"\"ab\"", "\"\u00e4\U0001F600c\"", R"("\ud83d\ude00a")", R"("\n\n\n")"},
       {"\"a\"", "\"abcd\""}},
      {R"({"type": "string", "maxLength": 0})", {"\"\""}, {"\"a\""}},
  });
  GrammarRun run(parse_json(R"({"type": "string", "minLength": 3000, "maxLength": 5000})", "test"));
  EXPECT_FALSE(run.accepts("\"" + std::string(2999, 'a') + "\""));
  EXPECT_TRUE(run.accepts("\"" + std::string(5000, 'a') + "\""));
  EXPECT_FALSE(run.begins("\"" + std::string(5001, 'a')));
}

TEST(JsonSchema, Objects) {
  check({
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}},
           "required": ["a", "b"], "additionalProperties": false})",
       {R"({"a":1,"b":null})", R"({"a": 1, "b": null})", "{\n  \"a\": 1,\n  \"b\": null\n}"},
       {"{}", R"({"a":1})", R"({"b":null,"a":1})", R"({"a":1,"b":null,"c":1})", R"({"a":1,})"}},
      {R"({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}, "required": ["b"]})",
       {R"({"b":2})", R"({"a":1,"b":2})", R"({"b":2,"c":3})", R"({"a":1,"b":2,"c":3})"},
       {"{}", R"({"a":1})", R"({,"b":2})", R"({"a":1,"c":3})"}},
      {R"({"properties": {"a": {"const": 1}, "b": {"const": 2}}})",
       {"{}", R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"},
       {R"({"c":1})", "{,}"}},
      {R"({"properties": {"a": {"const": 1}, "ab": false}, "additionalProperties": {"type": "boolean"}})",
       {"{}", R"({"a":1})", R"({"a":1,"b":true})", R"({"aa":true,"":false})",
        R"({"b":true,"c":true})"},
       {R"({"a":true})", R"({"b":1})", R"({"\u0061":true})", R"({"ab":true})",
        R"({"b":true,"a":1})"}},
      {R"({"type": "object"})", {"{}", R"({"x": {"y": [1, "z", null]}})"}, {"[]", "{\"x\"}"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2})",
       {"{}", R"({"x":1,"y":2})"},
       {R"({"x":1,"y":2,"z":3})"}},
      {R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"a":1})"}},
      {R"({"type": "object", "required": ["x"], "additionalProperties": {"const": 1}})",
       {R"({"x":1})", R"({"x":1,"y":1})"},
       {"{}", R"({"y":1})"}},
      {R"({"type": "object", "properties": {"\"q\"\n": {"const": 1}}, "required": ["\"q\"\n"]})",
       {R"({"\"q\"\n":1})"},
       {"{}"}},
  });
}

TEST(JsonSchema, Arrays) {
  check({
      {R"({"type": "array", "items": {"type": "integer"}})",
       {"[]", "[1]", "[1, 2,3]"},
       {"[1,]", "[\"a\"]"}},
      {R"({"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 3})",
       {"[1,1]", "[1,1,1]"},
       {"[]", "[1]", "[1,1,1,1]"}},
      {R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "minItems": 1})",
       {"[1]", "[1,2]", "[1,2,3,3]"},
       {"[]", "[2]", "[1,3]"}},
      {R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": false})",
       {"[]", "[1]", "[1,2]"},
       {"[1,2,3]"}},
      {R"({"prefixItems": [{"const": 1}], "items": {"const": 3}, "minItems": 3, "maxItems": 3})",
       {"[1,3,3]"},
       {"[1,3]", "[1,3,3,3]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
      {R"({"type": "array"})", {"[]", R"([1, [true], {"a": null}])"}, {"["}},
  });
}

TEST(JsonSchema, Combinations) {
  check({
      {R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})",
       {"1", "\"a\""},
       {"\"ab\""}},
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "x": {"const": 1}}, "required": ["k", "x"]},
                     {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}]})",
       {R"({"k":"a","x":1})", R"({"k":"b"})"},
       {R"({"k":"a"})", R"({"k":"c"})"}},
      {R"({"allOf": [{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
                     {"properties": {"b": {"const": 2}}, "required": ["b"]}]})",
       {R"({"a":1,"b":2})"},
       {R"({"a":1})", R"({"b":2})"}},
      {R"({"allOf": [{"type": "number", "minimum": 3}, {"type": "integer", "maximum": 5, "minimum": 1}]})",
       {"3", "5"},
       {"2", "6", "3.5"}},
      {R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "additionalProperties": false},
                     {"properties": {"a": {"minimum": 5}, "b": {"const": 1}}}]})",
       {"{}", R"({"a":5})"},
       {R"({"a":4})", R"({"b":1})"}},
      {R"({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"],
           "anyOf": [{"properties": {"b": {"const": 2}}, "required": ["b"]}, {"properties": {"c": {"const": 3}}, "required": ["c"]}]})",
       {R"({"a":1,"b":2})", R"({"a":1,"c":3})"},
       {R"({"a":1})", R"({"b":2})"}},
      {"true", {"1", "{}", "[[]]"}, {""}},
  });
}

TEST(JsonSchema, ReferencesAndRecursion) {
  check({
      {R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}})", {"1"}, {"\"a\""}},
      {R"({"$defs": {"a/b": {"const": 1}}, "properties": {"x": {"$ref": "#/$defs/a~1b", "description": "d"}}})",
       {R"({"x":1})"},
       {R"({"x":2})"}},
      {R"({"$defs": {"n": {"type": "integer"}}, "properties": {"x": {"$ref": "#/$defs/n", "minimum": 5}}, "required": ["x"]})",
       {R"({"x":5})"},
       {R"({"x":4})"}},
      {R"({"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
           "required": ["v", "next"]})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
       {R"({"v":1})", R"({"v":1,"next":{}})"}},
      {R"({"$ref": "#/definitions/tree", "definitions": {"tree": {"type": "array", "items": {"$ref": "#/definitions/tree"}}}})",
       {"[]", "[[],[[]]]"},
       {"[1]"}},
  });
}

TEST(JsonSchema, BlanksAreBounded) {
  GrammarRun run(parse_json(R"({"type": "object", "properties": {"a": {"const": 1}}})", "test"));
  EXPECT_TRUE(run.accepts("{ \"a\": 1 }"));
  EXPECT_TRUE(run.accepts("{\n\t\t\"a\": 1\n}"));
  EXPECT_FALSE(run.begins("{  "));
  EXPECT_FALSE(run.begins("{\n\n"));
  EXPECT_FALSE(run.begins("{\n" + std::string(41, ' ')));
  EXPECT_FALSE(run.begins("{\"a\":  "));
  EXPECT_FALSE(run.begins("{\"a\" "));
  EXPECT_FALSE(run.begins(" "));
  EXPECT_FALSE(run.begins("{} "));
  const Json schema = parse_json(R"({"type": "array", "items": {"const": 1}})", "test");
  GrammarRun dense(json_schema_grammar(schema, {.blanks = JsonBlanks::None}));
  EXPECT_TRUE(dense.accepts("[1,1]"));
  EXPECT_FALSE(dense.begins("[1, "));
  GrammarRun spaced(json_schema_grammar(schema, {.leading_newlines = true}));
  EXPECT_TRUE(spaced.accepts("\n\n[1]"));
  EXPECT_FALSE(spaced.begins("\n\n\n"));
}

TEST(JsonSchema, JsonMode) {
  GrammarRun run(json_object_grammar());
  EXPECT_TRUE(run.accepts(R"({"a": [1, -2.5e3, {"b": null}], "c": "\u00e4\n", "d": {}})"));
  EXPECT_FALSE(run.begins("["));
  EXPECT_FALSE(run.accepts("{\"a\": tru}"));
  const std::size_t depth = (run.reach([] {
    std::string text;
    for (int i = 0; i < 500; ++i) text += "{\"\":";
    return text;
  }()) / 4);
  EXPECT_GT(depth, 100u);
  EXPECT_LT(depth, 250u);  // parse_json reads 256
}

TEST(JsonSchema, ErrorsNameThePath) {
  const auto refuse = [](Errc code, const std::string& schema,
                         std::initializer_list<std::string_view> parts) {
    expect_error(code, parts,
                 [&] { compile_grammar(json_schema_grammar(parse_json(schema, "test"))); });
  };
  refuse(Errc::BadInput, R"({"$ref": "#/$defs/none"})", {"leads nowhere"});
  refuse(Errc::BadInput, R"({"type": "text"})", {"/type", "\"text\" is not a type"});
  refuse(Errc::BadInput, R"({"properties": []})", {"/properties", "object"});
  refuse(Errc::BadInput, R"({"properties": {"a": 1}})", {"/properties/a", "must be an object"});
  refuse(Errc::BadInput, R"({"required": ["x"], "additionalProperties": false, "properties": {}})",
         {"/required", "\"x\""});
  refuse(Errc::BadInput, R"({"type": "string", "minLength": -1})", {"/minLength"});
  refuse(Errc::BadInput, R"({"type": "string", "minLength": 5, "maxLength": 1})",
         {"no text matches"});
  refuse(Errc::BadInput, "false", {"no text matches"});
  refuse(Errc::BadInput, "3", {"must be an object"});
  refuse(Errc::BadInput, R"({"oneOf": [{"$ref": "#"}, {"type": "null"}]})", {"without end"});
  refuse(Errc::BadInput, R"({"$ref": "#"})", {"left recursion"});
  refuse(Errc::BadInput, R"({"anyOf": []})", {"/anyOf"});
  refuse(Errc::BadInput, R"({"properties": {"n": {"$ref": "#"}}, "required": ["n"]})",
         {"no text matches"});
  refuse(Errc::LimitExceeded, R"({"type": "string", "minLength": 10000000})", {"/minLength"});
}

}  // namespace
}  // namespace moeflux
