#include <filesystem>

#include <gtest/gtest.h>

#include "source/model_source.h"
#include "source/tensor_lookup.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::SafetensorsWriter;
using test::TempDir;

class OpenSource : public testing::Test {
 protected:
  void expect_open_error(Errc code, std::initializer_list<std::string_view> parts,
                         const std::string& name = ".") const {
    expect_error(code, parts, [&] { open_source(dir_.file(name)); });
  }
  TempDir dir_;
};

TEST_F(OpenSource, NothingThere) {
  expect_open_error(Errc::NotFound, {"absent", "no such file or directory"}, "absent");
  expect_open_error(Errc::NotFound, {dir_.path(), "holds no model", "model.safetensors"});
}

TEST_F(OpenSource, OnlyAConfig) {
  dir_.write("config.json", "{}");
  expect_open_error(Errc::NotFound, {dir_.path(), "no weights", "model.safetensors"});
}

TEST_F(OpenSource, Gguf) {
  dir_.write("model-q4.gguf", "GGUF");
  expect_open_error(Errc::BadInput, {"model-q4.gguf", "inside of its header"});
  expect_open_error(Errc::BadInput, {"model-q4.gguf", "inside of its header"}, "model-q4.gguf");
  std::filesystem::rename(dir_.file("model-q4.gguf"), dir_.file("mmproj-model.gguf"));
  expect_open_error(Errc::NotFound, {"mmproj-model.gguf", "no model by itself"});
}

TEST_F(OpenSource, Pickles) {
  dir_.write("pytorch_model-00001-of-00002.bin", "");
  expect_open_error(Errc::Unsupported, {"pytorch_model", "convert to safetensors"});
  dir_.write("model.pth", "");
  expect_open_error(Errc::Unsupported, {"model.pth", "convert to safetensors"}, "model.pth");
}

TEST_F(OpenSource, OtherFiles) {
  dir_.write("notes.txt", "");
  expect_open_error(Errc::BadInput, {"notes.txt", "not a checkpoint"}, "notes.txt");
  dir_.write("adapter.safetensors", "");
  expect_open_error(Errc::NotFound, {dir_.path(), "adapter.safetensors", "its own path"});
}

TEST_F(OpenSource, HalfAFlashMoeDirectory) {
  dir_.write("packed_experts/layer_00.bin", "");
  expect_open_error(Errc::NotFound, {"packed_experts", "no model_weights.json"});
}

TEST_F(OpenSource, UnsupportedQuantizationIsNamed) {
  SafetensorsWriter().add_counting("w", DType::F32, {2}).write(dir_.file("model.safetensors"));
  dir_.write("config.json", R"({"quantization_config": {"quant_method": "bitsandbytes"}})");
  expect_open_error(Errc::Unsupported, {"config.json", "bitsandbytes"});
}

TEST_F(OpenSource, FileOrDirectory) {
  SafetensorsWriter().add_counting("w", DType::F32, {2}).write(dir_.file("model.safetensors"));
  dir_.write("config.json", "{}");
  EXPECT_EQ(open_source(dir_.path())->tensors().size(), 1u);
  EXPECT_EQ(open_source(dir_.path() + "/")->tensors().size(), 1u);
  EXPECT_EQ(open_source(dir_.file("model.safetensors"))->tensors().size(), 1u);
}

TEST(OpenReleased, DemoModel) {
  const auto source = open_source(test::source_path("models/demo"));
  EXPECT_EQ(source->layout(), ModelSource::Layout::Mlx);
  EXPECT_EQ(source->n_files(), 2);
  EXPECT_EQ(source->config().at("model_type"), "qwen3_5_moe");
  EXPECT_TRUE(source->text().chat_template.is_string());
  EXPECT_FALSE(source->generation_config().empty());

  const StoredMatrix head = find_matrix(*source, "language_model.lm_head", 2240, 256);
  EXPECT_EQ(describe(head.format), "affine 8-bit g64");
  const StoredMatrix conv =
      find_matrix(*source, "language_model.model.layers.0.linear_attn.conv1d", 1024, 4);
  EXPECT_EQ(describe(conv.format), "bf16");
  const StoredExpertBank down = find_stacked_matrices(
      *source, "language_model.model.layers.0.mlp.switch_mlp.down_proj", 64, 256, 64);
  EXPECT_EQ(describe(down.at(63).format), "affine 4-bit g64");
  EXPECT_EQ(down.at(63).bytes(), 256u * (32 + 2 + 2));
}

TEST(OpenReleased, FusedExperts) {
  const auto source = open_source(test::source_path("tests/fixtures/qwen-released"));
  EXPECT_EQ(source->layout(), ModelSource::Layout::Safetensors);
  const Json& text = source->config().at("text_config");
  const auto n_experts = text.at("num_experts").get<int>();
  const auto d_ff = text.at("moe_intermediate_size").get<std::int64_t>();
  const auto d_model = text.at("hidden_size").get<std::int64_t>();
  const StoredExpertBank bank =
      find_stacked_matrices(*source, "model.language_model.layers.0.mlp.experts.gate_up_proj",
                            n_experts, 2 * d_ff, d_model);
  const StoredMatrix up = bank.slice(d_ff, d_ff).at(1);
  const auto row_bytes = static_cast<std::uint64_t>(data_row_bytes(up.format, d_model));
  EXPECT_EQ(up.data.offset - bank.at(0).data.offset,
            static_cast<std::uint64_t>(2 * d_ff + d_ff) * row_bytes);
}

}  // namespace
}  // namespace moeflux
