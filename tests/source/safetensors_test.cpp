#include "source/safetensors.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "source/tensor_lookup.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::SafetensorsWriter;
using test::TempDir;

const std::vector<float> kValues{1, -2, 3.5f, 4, 5, 6};

SafetensorsWriter small_file() {
  SafetensorsWriter writer;
  writer.add("odd", DType::U8, {1}, "x");  // what follows is unaligned
  writer.add_f32("w", {6}, kValues);
  return writer;
}

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() { dir_.write("config.json", R"({"model_type": "test"})"); }

  void write_index(const Json& weight_map) const {
    dir_.write("model.safetensors.index.json", dump_json({{"weight_map", weight_map}}));
  }
  auto open() const { return open_safetensors_directory(dir_.path()); }
  void expect_open_error(Errc code, std::initializer_list<std::string_view> parts) const {
    expect_error(code, parts, [&] { open(); });
  }

  TempDir dir_;
};

void expect_values(const ModelSource& source, const std::string& name) {
  EXPECT_EQ(read_vector(source, find_vector(source, name, 6)), kValues);
}

TEST_F(SafetensorsTest, SingleFile) {
  small_file().write(dir_.file("model.safetensors"));
  dir_.write("generation_config.json", R"({"top_k": 5})");
  dir_.write("tokenizer.json", "{}");
  const auto source = open();
  expect_values(*source, "w");
  EXPECT_EQ(source->path(), dir_.path());
  EXPECT_EQ(source->layout(), ModelSource::Layout::Safetensors);
  EXPECT_EQ(source->config().at("model_type"), "test");
  EXPECT_EQ(source->config_origin(), dir_.file("config.json"));
  EXPECT_EQ(source->generation_config().at("top_k"), 5);
  EXPECT_EQ(source->text().tokenizer_json, dir_.file("tokenizer.json"));
  EXPECT_EQ(source->tensors().size(), 2u);
}

TEST_F(SafetensorsTest, PathOfOneFile) {
  small_file().write(dir_.file("weights.safetensors"));
  const auto source = open_safetensors_file(dir_.file("weights.safetensors"));
  expect_values(*source, "w");
  EXPECT_EQ(source->config().at("model_type"), "test");
  expect_error(Errc::BadInput, {"one of 2 shards", "open the directory"},
               [&] { open_safetensors_file(dir_.file("model-00001-of-00002.safetensors")); });
}

TEST_F(SafetensorsTest, TensorFileNeedsNoConfig) {
  small_file().write(dir_.file("sub.safetensors"));
  std::filesystem::remove(dir_.file("config.json"));
  expect_values(*open_tensor_file(dir_.file("sub.safetensors")), "w");
}

TEST_F(SafetensorsTest, GapsAreAllowed) {
  SafetensorsWriter writer = small_file();
  writer.data() += "gap";
  writer.add_f32("v", {6}, kValues);
  writer.data() += "tail";
  writer.write(dir_.file("model.safetensors"));
  expect_values(*open(), "v");
}

TEST_F(SafetensorsTest, ShardsWithIndex) {
  SafetensorsWriter().add_f32("a", {6}, kValues).write(dir_.file("x-1.safetensors"));
  SafetensorsWriter().add_f32("b", {6}, kValues).write(dir_.file("x-2.safetensors"));
  dir_.write("model-unused.safetensors", "not read: the index does not name it");
  write_index({{"a", "x-1.safetensors"}, {"b", "x-2.safetensors"}});
  const auto source = open();
  EXPECT_EQ(source->n_files(), 2);
  expect_values(*source, "a");
  expect_values(*source, "b");
}

TEST_F(SafetensorsTest, ShardMayBeALink) {
  SafetensorsWriter().add_f32("a", {6}, kValues).write(dir_.file("blob"));
  std::filesystem::create_symlink(dir_.file("blob"), dir_.file("model.safetensors"));
  write_index({{"a", "model.safetensors"}});
  expect_values(*open(), "a");
}

TEST_F(SafetensorsTest, ShardsWithoutIndex) {
  SafetensorsWriter()
      .add_f32("a", {6}, kValues)
      .write(dir_.file("model-00001-of-00002.safetensors"));
  expect_open_error(Errc::NotFound, {dir_.path(), "model-00002-of-00002.safetensors"});
  SafetensorsWriter()
      .add_f32("b", {6}, kValues)
      .write(dir_.file("model-00002-of-00002.safetensors"));
  const auto source = open();
  expect_values(*source, "a");
  expect_values(*source, "b");
}

TEST_F(SafetensorsTest, LayoutIsMlxByMarkOrByQuantizedMatrix) {
  SafetensorsWriter marked = small_file();
  marked.metadata("format", "mlx").write(dir_.file("model.safetensors"));
  EXPECT_EQ(open()->layout(), ModelSource::Layout::Mlx);

  SafetensorsWriter quantized = small_file();
  quantized.metadata("format", "pt")
      .add_counting("m.weight", DType::U32, {1, 8})
      .add_counting("m.scales", DType::BF16, {1, 1})
      .write(dir_.file("model.safetensors"));
  EXPECT_EQ(open()->layout(), ModelSource::Layout::Mlx);

  SafetensorsWriter plain = small_file();
  plain.add_counting("m.scales", DType::F32, {1}).write(dir_.file("model.safetensors"));
  EXPECT_EQ(open()->layout(), ModelSource::Layout::Safetensors);
}

TEST_F(SafetensorsTest, RefusesBadIndexes) {
  small_file().write(dir_.file("a.safetensors"));
  write_index({{"w", "b.safetensors"}});
  expect_open_error(Errc::NotFound, {dir_.path(), "shard b.safetensors", "missing"});
  write_index({{"w", "a.safetensors"}, {"other", "a.safetensors"}});
  expect_open_error(Errc::NotFound, {"index.json", "\"other\"", "a.safetensors"});
  SafetensorsWriter().add_f32("v", {6}, kValues).write(dir_.file("c.safetensors"));
  write_index({{"w", "c.safetensors"}, {"odd", "a.safetensors"}});
  expect_open_error(Errc::NotFound, {"\"w\"", "should be in c.safetensors"});
  write_index(Json::object());
  expect_open_error(Errc::BadInput, {"index.json", "names no tensor"});
  dir_.write("model.safetensors.index.json", "{\"weight_map\": ");
  expect_open_error(Errc::BadInput, {"index.json", "not valid JSON"});
  for (const char* name : {"../a.safetensors", "/etc/passwd", "sub/a.safetensors", ".."}) {
    write_index({{"w", name}});
    expect_open_error(Errc::BadInput, {"index.json", name, "not the name of a file"});
  }
}

TEST_F(SafetensorsTest, RefusesATensorInTwoShards) {
  small_file().write(dir_.file("model-00001-of-00002.safetensors"));
  small_file().write(dir_.file("model-00002-of-00002.safetensors"));
  expect_open_error(Errc::BadInput, {"model-00002-of-00002.safetensors", "\"odd\"", "already",
                                     "model-00001-of-00002.safetensors"});
}

TEST_F(SafetensorsTest, RefusesWithoutConfig) {
  small_file().write(dir_.file("model.safetensors"));
  std::filesystem::remove(dir_.file("config.json"));
  expect_open_error(Errc::NotFound, {"config.json", "missing"});
}

TEST_F(SafetensorsTest, RefusesBadHeaderLengths) {
  const auto write = [&](const std::string& bytes) { dir_.write("model.safetensors", bytes); };
  const std::string file = small_file().bytes();
  write("");
  expect_open_error(Errc::BadInput, {"model.safetensors", "too few"});
  write(SafetensorsWriter::file_bytes(file.size(), file.substr(8), ""));
  expect_open_error(Errc::BadInput, {"model.safetensors", "header claims", "truncated"});
  for (const std::uint64_t length : {UINT64_MAX, UINT64_MAX - 8, std::uint64_t{1} << 63}) {
    write(SafetensorsWriter::file_bytes(length, file.substr(8), ""));
    expect_open_error(Errc::BadInput, {"header claims", std::to_string(length)});
  }
  write("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n");
  expect_open_error(Errc::BadInput, {"model.safetensors", "Git LFS pointer"});
  write(SafetensorsWriter::file_bytes("[1, 2]", ""));
  expect_open_error(Errc::BadInput, {"model.safetensors", "must be a JSON object"});
  write(SafetensorsWriter::file_bytes("garbage!", ""));
  expect_open_error(Errc::BadInput, {"model.safetensors", "not valid JSON"});
}

TEST_F(SafetensorsTest, RefusesAHeaderOverTheLimit) {
  const std::string path = dir_.write("model.safetensors", "");
  std::filesystem::resize_file(path, 200'000'000);  // a hole: takes no disk
  const std::string start = SafetensorsWriter::file_bytes(150'000'000, "{}", "");
  {
    FILE* out = std::fopen(path.c_str(), "r+b");
    ASSERT_NE(out, nullptr);
    std::fwrite(start.data(), 1, start.size(), out);
    std::fclose(out);
  }
  expect_open_error(Errc::BadInput, {"header claims 150000000 bytes", "at most 100000000"});
}

TEST_F(SafetensorsTest, TruncationIsSeenAtOpen) {
  const std::string file = small_file().bytes();
  dir_.write("model.safetensors", file.substr(0, file.size() - 1));
  expect_open_error(Errc::BadInput, {"model.safetensors", "truncated", "\"w\"",
                                     std::to_string(file.size()), std::to_string(file.size() - 1)});
}

TEST_F(SafetensorsTest, RefusesSizesThatDoNotFitTheShape) {
  SafetensorsWriter writer = small_file();
  writer.header()["w"]["shape"] = {7};
  writer.write(dir_.file("model.safetensors"));
  expect_open_error(Errc::BadInput, {"model.safetensors", "\"w\"", "24 bytes", "needs 28"});
  writer.header()["w"]["shape"] = {std::int64_t{1} << 39, std::int64_t{1} << 39, 4};
  writer.write(dir_.file("model.safetensors"));
  expect_open_error(Errc::BadInput, {"\"w\"", "impossible shape"});
  writer.header()["w"]["shape"] = {6};
  writer.header()["w"]["data_offsets"] = {1000, 1024};
  writer.write(dir_.file("model.safetensors"));
  expect_open_error(Errc::BadInput, {"\"w\"", "only"});
}

}  // namespace
}  // namespace moeflux
