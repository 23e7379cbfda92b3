// What a flash-moe directory can lack or contradict; a tiny one is written by hand.
#include <filesystem>

#include <gtest/gtest.h>

#include "source/flash_moe.h"
#include "source/tensor_lookup.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempDir;

class FlashMoeErrors : public testing::Test {
 protected:
  static constexpr ExpertSizes kSizes{.n_experts = 2, .d_model = 128, .d_ff = 64};

  FlashMoeErrors() {
    manifest_ = {
        {"config",
         {{"kv_lora_rank", 8},
          {"n_routed_experts", 2},
          {"hidden_size", 128},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"moe_intermediate_size", 64},
          {"first_k_dense_replace", 1},
          {"default_bits", 4},
          {"default_group_size", 64}}},
        {"tensors",
         {{"lm_head.weight", {{"offset", 0}, {"size", 128}, {"shape", {2, 16}}, {"dtype", "U32"}}},
          {"lm_head.scales", {{"offset", 128}, {"size", 8}, {"shape", {2, 2}}, {"dtype", "BF16"}}},
          {"lm_head.biases",
           {{"offset", 192}, {"size", 8}, {"shape", {2, 2}}, {"dtype", "BF16"}}}}}};
    dir_.write("model_weights.bin", std::string(200, 'w'));
    write_layer("packed_experts/layer_01.bin", 4);
    write_layer("packed_experts/layer_02.bin", 4);
  }
  void write_layer(const std::string& name, int bits, std::int64_t extra = 0) const {
    dir_.write(name, "");
    const auto bytes = static_cast<std::int64_t>(2 * packed_blob(kSizes, bits).bytes) + extra;
    fs::resize_file(dir_.file(name), static_cast<std::uintmax_t>(bytes));
  }
  auto open() const {
    dir_.write("model_weights.json", dump_json(manifest_));
    return open_source(dir_.path());
  }
  void expect_open_error(Errc code, std::initializer_list<std::string_view> parts) const {
    expect_error(code, parts, [&] { open(); });
  }

  TempDir dir_;
  Json manifest_;
};

TEST_F(FlashMoeErrors, TheTinyOneOpens) {
  const auto source = open();
  EXPECT_EQ(source->config().at("model_type"), "deepseek_v3");
  EXPECT_EQ(source->config().at("num_key_value_heads"), 4);
  EXPECT_EQ(source->config().at("scoring_func"), "sigmoid");
  EXPECT_EQ(find_matrix(*source, "lm_head", 2, 128).format.bits, 4);
  EXPECT_FALSE(has_module(*source, "model.layers.0.mlp.switch_mlp.up_proj"));
  EXPECT_EQ(find_stacked_matrices(*source, "model.layers.1.mlp.switch_mlp.up_proj", 2, 64, 128)
                .at(1)
                .format.bits,
            4);
}

TEST_F(FlashMoeErrors, MissingWeights) {
  fs::remove(dir_.file("model_weights.bin"));
  expect_open_error(Errc::NotFound, {"model_weights.bin", "missing"});
}

TEST_F(FlashMoeErrors, TruncatedWeights) {
  fs::resize_file(dir_.file("model_weights.bin"), 199);
  expect_open_error(Errc::BadInput, {"model_weights.bin", "\"lm_head.biases\"",
                                     "8 bytes from byte "
                                     "192",
                                     "only 199"});
}

TEST_F(FlashMoeErrors, MissingLayer) {
  fs::remove(dir_.file("packed_experts/layer_02.bin"));
  expect_open_error(Errc::NotFound, {"packed_experts/layer_02.bin", "layer 2 of 3"});
}

TEST_F(FlashMoeErrors, LayerOfTheWrongSize) {
  write_layer("packed_experts/layer_02.bin", 4, -1);
  expect_open_error(Errc::BadInput, {"layer_02.bin", "truncated", "(4-bit)", "(2-bit)"});
  write_layer("packed_experts/layer_02.bin", 4, 64);
  expect_open_error(Errc::BadInput, {"layer_02.bin", "another model"});
}

TEST_F(FlashMoeErrors, DirectoryNameDoesNotDecideTheBits) {
  fs::rename(dir_.file("packed_experts"), dir_.file("packed_experts_2bit"));
  EXPECT_EQ(open()->find("model.layers.1.mlp.switch_mlp.up_proj.weight")->shape.back(), 16);
  write_layer("packed_experts_2bit/layer_01.bin", 2);
  EXPECT_EQ(open()->find("model.layers.1.mlp.switch_mlp.up_proj.weight")->shape.back(), 8);
}

TEST_F(FlashMoeErrors, OnlyCompressedExperts) {
  fs::rename(dir_.file("packed_experts"), dir_.file("packed_experts_lz4"));
  expect_open_error(Errc::Unsupported, {"packed_experts_lz4", "not supported"});
}

TEST_F(FlashMoeErrors, NoExperts) {
  fs::remove_all(dir_.file("packed_experts"));
  expect_open_error(Errc::NotFound, {dir_.path(), "packed_experts"});
}

TEST_F(FlashMoeErrors, BitsThatContradictTheShapes) {
  manifest_["tensors"]["lm_head.weight"]["bits"] = 2;  // 256 columns, 2 groups of 128: possible
  EXPECT_NO_THROW(open());
  manifest_["tensors"]["lm_head.weight"]["bits"] = 3;
  expect_open_error(Errc::BadInput, {"model_weights.json", "\"lm_head.weight\"", "3 bits"});
}

TEST_F(FlashMoeErrors, ManifestOfNoKnownModel) {
  manifest_["config"].erase("kv_lora_rank");
  expect_open_error(Errc::BadInput, {"model_weights.json", "no known model"});
  manifest_.erase("config");
  expect_open_error(Errc::BadInput, {"model_weights.json", "no known model"});
}

TEST_F(FlashMoeErrors, SizesThatAreMissingOrAbsurd) {
  manifest_["config"].erase("moe_intermediate_size");
  expect_open_error(Errc::BadInput, {"config", "\"moe_intermediate_size\" is missing"});
  manifest_["config"]["moe_intermediate_size"] = 1 << 30;
  expect_open_error(Errc::BadInput, {"moe_intermediate_size", "outside"});
  manifest_["config"]["moe_intermediate_size"] = 65;
  expect_open_error(Errc::BadInput, {"moe_intermediate_size", "65", "multiples"});
}

TEST_F(FlashMoeErrors, ConfigFileWinsOverTheManifest) {
  Json config = manifest_["config"];
  config["model_type"] = "from_file";
  dir_.write("mlx/config.json", dump_json(config));
  EXPECT_EQ(open()->config().at("model_type"), "from_file");
  config["quantization"] = {{"mode", "mxfp6"}};
  dir_.write("mlx/config.json", dump_json(config));
  expect_open_error(Errc::Unsupported, {"mlx/config.json", "mxfp6"});
}

TEST_F(FlashMoeErrors, PrefixFollowsTheManifest) {
  manifest_["tensors"]["language_model.model.embed_tokens.weight"] = {
      {"offset", 196}, {"size", 4}, {"shape", {2}}, {"dtype", "BF16"}};
  manifest_["tensors"].erase("lm_head.biases");
  EXPECT_NE(open()->find("language_model.model.layers.1.mlp.switch_mlp.up_proj.weight"), nullptr);
}

}  // namespace
}  // namespace moeflux
