#include "source/tensor_index.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace moeflux {
namespace {

using test::expect_error;

void expect_header_error(std::string_view json, std::initializer_list<std::string_view> parts) {
  SCOPED_TRACE(json);
  expect_error(Errc::BadInput, {"file.safetensors"},
               [&] { parse_safetensors_header(json, "file.safetensors"); });
  expect_error(Errc::BadInput, parts, [&] { parse_safetensors_header(json, "file.safetensors"); });
}

TEST(SafetensorsHeader, ReadsEntriesByPosition) {
  const SafetensorsHeader header = parse_safetensors_header(
      R"({"__metadata__": {"format": "mlx", "other": "x"},
          "b": {"dtype": "BF16", "shape": [3], "data_offsets": [8, 14]},
          "a": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
          "scalar": {"dtype": "I64", "shape": [], "data_offsets": [20, 28]}}   )",
      "f");
  EXPECT_EQ(header.format, "mlx");
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, DType::F32);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_EQ(header.tensors[1].begin, 8u);
  EXPECT_EQ(header.tensors[1].end, 14u);
  EXPECT_TRUE(header.tensors[2].shape.empty());
}

TEST(SafetensorsHeader, ToleratesAnyMetadata) {
  EXPECT_EQ(parse_safetensors_header(R"({"__metadata__": null})", "f").format, "");
  EXPECT_EQ(parse_safetensors_header(R"({"__metadata__": {"format": 3}})", "f").format, "");
  EXPECT_TRUE(parse_safetensors_header("{}", "f").tensors.empty());
}

TEST(SafetensorsHeader, RefusesWhatIsNotAHeader) {
  expect_header_error("", {"not valid JSON"});
  expect_header_error("{", {"not valid JSON"});
  expect_header_error("\xFF\xFE{}", {"not valid JSON"});
  expect_header_error("[]", {"must be a JSON object"});
  expect_header_error("3", {"must be a JSON object"});
  expect_header_error(std::string(3000, '['), {"not valid JSON"});
  expect_header_error(R"({"a": 1})", {"\"a\"", "must be a JSON object"});
}

// A later version of the format may have any of these and more.
TEST(SafetensorsHeader, KeepsElementTypesThatAreNotKnown) {
  for (const std::string dtype : {"F64", "F8_E5M2FNUZ", "F4", "F6_E2M3", "C64", "F31"}) {
    const auto header = parse_safetensors_header(
        R"({"w": {"dtype": ")" + dtype + R"(", "shape": [3], "data_offsets": [0, 7]}})", "f");
    ASSERT_EQ(header.tensors.size(), 1u);
    EXPECT_EQ(header.tensors[0].unread_dtype, dtype);
  }
  const auto known = parse_safetensors_header(
      R"({"w": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}})", "f");
  EXPECT_EQ(known.tensors[0].unread_dtype, "");
}

TEST(SafetensorsHeader, RefusesBadFields) {
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return R"({"w": {"dtype": )" + dtype + R"(, "shape": )" + shape + R"(, "data_offsets": )" +
           offsets + "}}";
  };
  for (const char* dtype : {"\"\"", "\"f 64\"", "\"F64\\n\"", "\"\\u001b[31m\""}) {
    expect_header_error(entry(dtype, "[1]", "[0,4]"), {"\"w\"", "not the name of an element type"});
  }
  expect_header_error(entry(fmt::format("\"{:F>33}\"", ""), "[1]", "[0,4]"), {"\"w\""});
  expect_header_error(entry("32", "[1]", "[0,4]"), {"\"w\"", "\"dtype\" must be a string"});
  expect_header_error(entry("\"F32\"", "1", "[0,4]"), {"\"shape\" must be an array"});
  expect_header_error(entry("\"F32\"", "[-1]", "[0,4]"), {"\"shape\" must hold integers"});
  expect_header_error(entry("\"F32\"", "[1.5]", "[0,4]"), {"\"shape\" must hold integers"});
  expect_header_error(entry("\"F32\"", "[\"1\"]", "[0,4]"), {"\"shape\" must hold integers"});
  expect_header_error(entry("\"F32\"", "[18446744073709551615]", "[0,4]"),
                      {"\"shape\" must hold integers"});
  expect_header_error(entry("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), {"more than 8 dimensions"});
  expect_header_error(entry("\"F32\"", "[1]", "[0]"), {"array of two numbers"});
  expect_header_error(entry("\"F32\"", "[1]", "[0,4,8]"), {"array of two numbers"});
  expect_header_error(entry("\"F32\"", "[1]", "{}"), {"array of two numbers"});
  expect_header_error(entry("\"F32\"", "[1]", "[4,0]"), {"\"w\"", "[4, 0] ends before"});
  expect_header_error(entry("\"F32\"", "[1]", "[-4,0]"), {"\"data_offsets\" must hold integers"});
  expect_header_error(entry("\"F32\"", "[1]", "[0,99999999999999999999]"), {"not valid JSON"});
  expect_header_error(R"({"w": {"dtype": "F32", "shape": [1]}})",
                      {"\"w\"", "\"data_offsets\" is missing"});
}

TEST(SafetensorsHeader, RefusesDuplicates) {
  constexpr const char* kEntry = R"("w": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]})";
  expect_header_error(fmt::format("{{{},{}}}", kEntry, kEntry), {"\"w\"", "listed twice"});
  expect_header_error(
      R"({"w": {"dtype": "F32", "dtype": "F16", "shape": [0], "data_offsets": [0, 0]}})",
      {"\"w\"", "\"dtype\" occurs twice"});
  expect_header_error(R"({"__metadata__": {}, "__metadata__": {}})", {"occurs twice"});
}

TEST(SafetensorsHeader, RefusesOverlapButNotGapsOrEmptyTensors) {
  const auto two = [](const char* a, const char* b) {
    return R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": )" + std::string(a) +
           R"(}, "b": {"dtype": "U8", "shape": [4], "data_offsets": )" + b + "}}";
  };
  expect_header_error(two("[0,4]", "[3,7]"), {"\"a\" (bytes 0 to 4)", "\"b\" (bytes 3 to 7)"});
  expect_header_error(two("[0,4]", "[0,4]"), {"overlap"});
  expect_header_error(two("[2,3]", "[0,9]"), {"overlap"});
  EXPECT_EQ(parse_safetensors_header(two("[0,4]", "[40,44]"), "f").tensors.size(), 2u);
  EXPECT_EQ(parse_safetensors_header(two("[0,4]", "[2,2]"), "f").tensors.size(), 2u);
}

TEST(SafetensorsHeader, RefusesNamesATerminalWouldObey) {
  expect_header_error(R"({"\u001b[2J": {}})", {"not printable"});
  expect_header_error(R"({"": {}})", {"empty"});
  expect_header_error(fmt::format("{{\"{}\": {{}}}}", std::string(600, 'x')), {"600 bytes"});
}

TEST(WeightMap, Reads) {
  const auto map = parse_weight_map(
      R"({"metadata": {"total_size": 8}, "weight_map": {"b": "2", "a": "1"}})", "index");
  EXPECT_EQ(map, (std::map<std::string, std::string>{{"a", "1"}, {"b", "2"}}));
}

TEST(WeightMap, RefusesBadOnes) {
  const auto expect = [](const char* json, std::initializer_list<std::string_view> parts) {
    expect_error(Errc::BadInput, parts, [&] { parse_weight_map(json, "index"); });
  };
  expect("{}", {"index", "\"weight_map\" must be a JSON object"});
  expect(R"({"weight_map": []})", {"\"weight_map\" must be a JSON object"});
  expect(R"({"weight_map": {"a": 1}})", {"\"a\"", "must be a string"});
  expect(R"({"weight_map": {"a": "1", "a": "2"}})", {"\"a\"", "listed twice"});
  expect(R"({"weight_map": {"a": "x\u0000y"}})", {"not printable"});
}

TEST(Manifest, Reads) {
  const FlashMoeManifest manifest = parse_flash_moe_manifest(
      R"({"model": "m", "num_tensors": 9, "config": {"hidden_size": 64},
          "tensors": {"a": {"offset": 64, "size": 8, "shape": [2], "dtype": "F32"},
                      "q": {"offset": 0, "size": 8, "shape": [2], "dtype": "U32"},
                      "r": {"offset": 8, "size": 8, "shape": [2], "dtype": "U32", "bits": 8}}})",
      "f");
  EXPECT_EQ(manifest.config.at("hidden_size"), 64);
  ASSERT_EQ(manifest.tensors.size(), 3u);
  EXPECT_EQ(manifest.tensors[0].bits, 4);  // what a manifest without "bits" means
  EXPECT_EQ(manifest.tensors[1].bits, 8);
  EXPECT_EQ(manifest.tensors[2].name, "a");
  EXPECT_EQ(manifest.tensors[2].begin, 64u);
  EXPECT_EQ(manifest.tensors[2].end, 72u);
  EXPECT_EQ(manifest.tensors[2].bits, 0);
}

TEST(Manifest, RefusesBadOnes) {
  const auto expect = [](const std::string& json, std::initializer_list<std::string_view> parts) {
    expect_error(Errc::BadInput, parts, [&] { parse_flash_moe_manifest(json, "manifest"); });
  };
  expect("[]", {"manifest", "must be a JSON object"});
  expect("{}", {"\"tensors\" must be a JSON object"});
  expect(R"({"tensors": {"a": {"size": 8, "shape": [2], "dtype": "F32"}}})",
         {"\"a\"", "\"offset\" is missing"});
  expect(R"({"tensors": {"a": {"offset": 0, "size": -8, "shape": [2], "dtype": "F32"}}})",
         {"\"a\"", "\"size\""});
  expect(R"({"tensors": {"a": {"offset": 0, "size": 8, "shape": [2], "dtype": "U32", "bits": 7}}})",
         {"\"a\"", "\"bits\" is 7"});
  expect(R"({"tensors": {}, "config": 3})", {"\"config\" must be a JSON object"});
}

}  // namespace
}  // namespace moeflux
