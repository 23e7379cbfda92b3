#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Json, KeepsTheOrderOfKeys) {
  EXPECT_EQ(dump_json(parse_json(R"({"b": 1, "a": [2, 3]})", "x")), R"({"b":1,"a":[2,3]})");
}

TEST(Json, ParseErrorsNameTheirOrigin) {
  EXPECT_EQ(
      error_of([] { parse_json("{", "config.json"); }).rfind("config.json: not valid JSON: ", 0),
      0u);
  EXPECT_EQ(error_of([] { parse_json("\"\xFF\"", "x"); }).rfind("x: not valid JSON: ", 0), 0u);
  EXPECT_EQ(error_of([] { parse_json("1 2", "x"); }).rfind("x: not valid JSON: ", 0), 0u);
}

TEST(Json, DeepNestingIsRefused) {
  const std::string deep = std::string(100'000, '[');
  EXPECT_NE(error_of([&] { parse_json(deep, "x"); }).find("nested deeper"), std::string::npos);
  EXPECT_NO_THROW(parse_json(std::string(200, '[') + std::string(200, ']'), "x"));
}

TEST(Json, FilesOverTheirLimitAreRefused) {
  const test::TempDir dir;
  const std::string path = dir.write("a.json", "[1, 2, 3]");
  EXPECT_EQ(read_json_file(path).size(), 3u);
  EXPECT_NE(error_of([&] { read_json_file(path, 4); }).find("9 bytes, more than the 4"),
            std::string::npos);
}

TEST(Json, InvalidUtf8IsReplacedWhenWritten) {
  EXPECT_EQ(dump_json(Json("a\xFF")), "\"a\uFFFD\"");
}

TEST(JsonFields, ReadsTypedMembers) {
  const Json json = parse_json(
      R"({"n": 7, "whole": 8.0, "x": 0.5, "yes": true, "s": "text", "nothing": null})", "x");
  const JsonFields fields(json, "config.json");
  EXPECT_EQ(fields.integer("n", 0, 10), 7);
  EXPECT_EQ(fields.integer("whole", 0, 10), 8);
  EXPECT_EQ(fields.integer_or("missing", 3, 0, 10), 3);
  EXPECT_EQ(fields.integer_or("nothing", 3, 0, 10), 3);
  EXPECT_EQ(fields.number("x"), 0.5);
  EXPECT_EQ(fields.number_or("missing", 1.5), 1.5);
  EXPECT_TRUE(fields.boolean_or("yes", false));
  EXPECT_EQ(fields.string("s"), "text");
  EXPECT_EQ(fields.string_or("missing", "else"), "else");
  EXPECT_TRUE(fields.has("n"));
  EXPECT_FALSE(fields.has("nothing"));
}

TEST(JsonFields, ErrorsNameOriginAndField) {
  const Json json =
      parse_json(R"({"n": 7, "x": 0.5, "s": "text", "big": 18446744073709551615})", "x");
  const JsonFields fields(json, "config.json");
  EXPECT_EQ(error_of([&] { fields.integer("n", 0, 5); }),
            "config.json: \"n\" is 7, outside of 0 to 5");
  EXPECT_EQ(error_of([&] { fields.integer("x", 0, 5); }),
            "config.json: \"x\" must be an integer, but is 0.5");
  EXPECT_EQ(error_of([&] { fields.integer("big", 0, 5); }),
            "config.json: \"big\" must be an integer, but is 18446744073709551615");
  EXPECT_EQ(error_of([&] { fields.integer("gone", 0, 5); }), "config.json: \"gone\" is missing");
  EXPECT_EQ(error_of([&] { fields.string("n"); }), "config.json: \"n\" must be a string");
  EXPECT_EQ(error_of([&] { fields.boolean_or("n", true); }),
            "config.json: \"n\" must be true or false");
  EXPECT_EQ(error_of([&] { fields.number("s"); }),
            "config.json: \"s\" must be a finite number, but is \"text\"");
  EXPECT_EQ(error_of([] { JsonFields(Json::array(), "f"); }), "f: must be a JSON object");
}

}  // namespace
}  // namespace moeflux
