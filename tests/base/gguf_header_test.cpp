#include "base/gguf_header.h"

#include <limits>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/gguf_writer.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::GgufWriter;
using test::TempDir;

class GgufHeaderTest : public testing::Test {
 protected:
  GgufHeader open(const GgufWriter& writer) {
    writer.write(path_);
    return GgufHeader(path_);
  }
  GgufHeader open_bytes(const std::string& bytes) {
    directory_.write("a.gguf", bytes);
    return GgufHeader(path_);
  }

  TempDir directory_;
  const std::string path_ = directory_.file("a.gguf");
};

TEST_F(GgufHeaderTest, EveryTypeOfValue) {
  GgufWriter writer;
  writer.number<std::uint8_t>("u8", 255)
      .number<std::int8_t>("i8", -128)
      .number<std::uint16_t>("u16", 65535)
      .number<std::int16_t>("i16", -32768)
      .number<std::uint32_t>("u32", 4294967295u)
      .number<std::int32_t>("i32", std::numeric_limits<std::int32_t>::min())
      .number<std::uint64_t>("u64", std::uint64_t{1} << 40)
      .number<std::int64_t>("i64", -(std::int64_t{1} << 40))
      .number("f32", 0.25f)
      .number("f64", 1e300)
      .boolean("yes", true)
      .text("text", "h\xC3\xA9")
      .numbers<std::int32_t>("list", {3, -1, 2})
      .numbers<float>("floats", {1.5f, -2})
      .texts("texts", {"a", "", "\xE2\x96\x81z"});
  const GgufHeader header = open(writer);
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min(),
                         kMax = std::numeric_limits<std::int64_t>::max();
  const auto integer = [&](const char* key) { return header.integer(key, kMin, kMax); };
  EXPECT_EQ(integer("u8"), 255);
  EXPECT_EQ(integer("i8"), -128);
  EXPECT_EQ(integer("u16"), 65535);
  EXPECT_EQ(integer("i16"), -32768);
  EXPECT_EQ(integer("u32"), 4294967295);
  EXPECT_EQ(integer("i32"), -2147483648);
  EXPECT_EQ(integer("u64"), 1099511627776);
  EXPECT_EQ(integer("i64"), -1099511627776);
  EXPECT_EQ(header.number("f32"), 0.25);
  EXPECT_EQ(header.number("f64"), 1e300);
  EXPECT_EQ(header.number("i8"), -128);
  EXPECT_TRUE(header.boolean_or("yes", false));
  EXPECT_TRUE(header.boolean_or("no such key", true));
  EXPECT_EQ(header.string("text"), "h\xC3\xA9");
  EXPECT_EQ(header.integers("list"), (std::vector<std::int64_t>{3, -1, 2}));
  EXPECT_EQ(header.integers("yes"), std::vector<std::int64_t>{1});
  EXPECT_EQ(header.numbers("floats"), (std::vector<float>{1.5f, -2}));
  EXPECT_EQ(header.numbers("list"), (std::vector<float>{3, -1, 2}));
  EXPECT_EQ(header.strings("texts"), (std::vector<std::string>{"a", "", "\xE2\x96\x81z"}));
  EXPECT_EQ(header.strings("text"), std::vector<std::string>{"h\xC3\xA9"});
  EXPECT_EQ(header.count("texts"), 3u);
  EXPECT_TRUE(header.is_list("texts"));
  EXPECT_FALSE(header.is_list("text"));
  EXPECT_EQ(header.keys().size(), 15u);
  EXPECT_EQ(header.version(), 3u);
  EXPECT_EQ(header.alignment(), 32u);
}

TEST_F(GgufHeaderTest, WrongKindsNameTheKey) {
  GgufWriter writer;
  writer.number<std::int32_t>("small", 3)
      .number("half", 0.5f)
      .number("nan", std::numeric_limits<float>::quiet_NaN())
      .boolean("yes", true)
      .text("text", "t")
      .numbers<std::int32_t>("list", {1});
  const GgufHeader header = open(writer);
  expect_error(Errc::BadInput, {"a.gguf", "\"small\" is 3", "4 to 9"},
               [&] { header.integer("small", 4, 9); });
  for (const char* key : {"half", "yes", "text", "list"}) {
    expect_error(Errc::BadInput, {"a.gguf", key, "integer"}, [&] { header.integer(key, 0, 9); });
  }
  for (const char* key : {"yes", "text", "list", "nan"}) {
    expect_error(Errc::BadInput, {"a.gguf", key, "number"}, [&] { header.number(key); });
  }
  for (const char* key : {"small", "list"}) {
    expect_error(Errc::BadInput, {"a.gguf", key, "text"}, [&] { header.string(key); });
  }
  expect_error(Errc::BadInput, {"a.gguf", "\"text\"", "true or false"},
               [&] { header.boolean_or("text", false); });
  expect_error(Errc::BadInput, {"\"gone\" is missing"}, [&] { header.string("gone"); });
}

TEST_F(GgufHeaderTest, Tensors) {
  GgufWriter writer;
  const float values[6] = {};
  writer.floats("a.weight", {2, 3}, values).floats("b", {1}, std::span(values, 1));
  const GgufHeader header = open(writer);
  ASSERT_EQ(header.tensors().size(), 2u);
  EXPECT_EQ(header.tensors()[0].name, "a.weight");
  EXPECT_EQ(header.tensors()[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(header.tensors()[0].type, 0u);
  EXPECT_EQ(header.tensors()[1].offset, 32u);
  EXPECT_EQ(header.data_begin() % 32, 0u);
  EXPECT_EQ(header.data_begin() + 36, header.file().size());
}

TEST_F(GgufHeaderTest, AnyAlignment) {
  for (const std::uint64_t alignment : {1u, 8u, 64u, 4096u, 65536u}) {
    GgufWriter writer;
    writer.alignment = alignment;
    writer.number("general.alignment", alignment);
    const float value = 1;
    writer.floats("a", {1}, std::span(&value, 1)).floats("b", {1}, std::span(&value, 1));
    const GgufHeader header = open(writer);
    EXPECT_EQ(header.data_begin() % alignment, 0u) << alignment;
    EXPECT_EQ(header.tensors()[1].offset, std::max<std::uint64_t>(alignment, 4));
    EXPECT_LT(header.data_begin() - writer.header().size(), alignment);
  }
  for (const std::uint32_t alignment : {0u, 24u, 1u << 31}) {
    expect_error(Errc::BadInput, {"general.alignment"},
                 [&] { open(GgufWriter().number("general.alignment", alignment)); });
  }
}

TEST_F(GgufHeaderTest, VersionTwoIsTheSame) {
  GgufWriter writer;
  writer.version = 2;
  EXPECT_EQ(open(writer.text("k", "v")).string("k"), "v");
  for (const std::uint32_t version : {0u, 1u, 4u}) {
    writer.version = version;
    expect_error(Errc::Unsupported, {"a.gguf", "version"}, [&] { open(writer); });
  }
  writer.version = 3u << 24;
  expect_error(Errc::Unsupported, {"big-endian"}, [&] { open(writer); });
}

TEST_F(GgufHeaderTest, RawValuesMakeAHeaderAgain) {
  GgufWriter writer;
  writer.text("drop", "x").texts("keep", {"a", "b"}).number("too", 2.5f);
  const GgufHeader header = open(writer);
  GgufWriter wanted;
  wanted.texts("keep", {"a", "b"}).number("too", 2.5f);
  std::string again = GgufWriter().header();
  again[16] = 2;  // keys
  again += header.raw("keep") + header.raw("too");
  EXPECT_EQ(again, wanted.header());
}

TEST_F(GgufHeaderTest, OtherFilesAreRefused) {
  expect_error(Errc::BadInput, {"a.gguf", "is no GGUF file"}, [&] { open_bytes("GGML1234"); });
  expect_error(Errc::BadInput, {"a.gguf", "is no GGUF file"}, [&] { open_bytes(""); });
  expect_error(Errc::BadInput, {"git lfs pull"},
               [&] { open_bytes("version https://git-lfs.github.com/spec/v1\n"); });
}

TEST_F(GgufHeaderTest, NoCountIsBelieved) {
  const auto refused = [&](const GgufWriter& writer, std::string_view part) {
    expect_error(Errc::BadInput, {"a.gguf", part}, [&] { open(writer); });
  };
  GgufWriter many;
  many.claimed_tensors = std::uint64_t{1} << 60;
  refused(many, "claims");
  GgufWriter more;
  more.claimed_keys = 1000;
  refused(more, "inside of its header");
  const std::string huge(8, '\x7F');
  refused(GgufWriter().raw("text", 8, huge), "truncated");
  refused(GgufWriter().raw("list", 9, std::string("\6\0\0\0", 4) + huge), "truncated");
  refused(GgufWriter().raw("list", 9, std::string("\10\0\0\0", 4) + huge), "truncated");
  expect_error(Errc::Unsupported, {"\"lists\"", "list of 9"}, [&] {
    open(GgufWriter().raw("lists", 9, std::string("\11\0\0\0\1\0\0\0\0\0\0\0", 12)));
  });
  expect_error(Errc::Unsupported, {"\"odd\"", "type 13"},
               [&] { open(GgufWriter().raw("odd", 13, "")); });
  refused(GgufWriter().text("twice", "").text("twice", ""), "\"twice\" is there twice");
  refused(GgufWriter().text("\xFF", ""), "UTF-8");
  refused(GgufWriter().text(std::string(2000, 'k'), ""), "2000 bytes");
  refused(GgufWriter().tensor_at("t", {1, 1, 1, 1, 1}, 0, 0), "5 dimensions");
  refused(GgufWriter().tensor_at("t", {1}, 0, 7), "no multiple of 32");
  refused(GgufWriter().tensor_at("t", {1}, 0, ~std::uint64_t{31}), "\"t\"");
}

TEST_F(GgufHeaderTest, TruncationAtEveryByteIsAnError) {
  GgufWriter writer;
  writer.text("general.architecture", "x").texts("list", {"ab", "c"}).number("n", 3.0f);
  writer.tensor_at("t", {2, 2}, 0, 0);
  const std::string header = writer.header();
  for (std::size_t size = 0; size < header.size(); ++size) {
    EXPECT_THROW(open_bytes(header.substr(0, size)), Error) << size;
  }
  EXPECT_NO_THROW(open_bytes(header));
}

}  // namespace
}  // namespace moeflux
