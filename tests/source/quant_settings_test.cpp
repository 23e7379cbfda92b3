#include "source/quant_settings.h"

#include <gtest/gtest.h>

#include "source/checkpoint_files.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::expect_error;

void expect_refused(const std::string& config, std::initializer_list<std::string_view> parts) {
  SCOPED_TRACE(config);
  expect_error(Errc::Unsupported, parts,
               [&] { check_quantization(parse_json(config, "test"), "config.json"); });
}

void expect_accepted(const char* config) {
  SCOPED_TRACE(config);
  EXPECT_NO_THROW(check_quantization(parse_json(config, "test"), "config.json"));
}

std::string block(const std::string& members) {
  return "{\"quantization_config\": {" + members + "}}";
}

TEST(Quantization, AcceptsWhatCanBeRead) {
  expect_accepted("{}");
  expect_accepted(R"({"quantization": null, "quantization_config": null})");
  expect_accepted(R"({"quantization": {"bits": 4, "group_size": 64}})");
  expect_accepted(R"({"quantization": {"bits": 4, "mode": "affine", "lm_head": {"bits": 8},
                      "model.layers.0.mlp.gate": false},
                      "quantization_config": {"bits": 4, "mode": "affine"}})");
  expect_accepted(
      R"({"quantization": {"bits": 4, "mode": "mxfp4", "lm_head": {"mode": "mxfp8"}}})");
  expect_accepted(R"({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                      "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}})");
  expect_accepted(R"({"quantization_config": {"quant_method": "fp8", "fmt": "float8_e4m3fn"}})");
  expect_accepted(R"({"quantization_config": {"quant_method": "mxfp4"}})");
  expect_accepted(R"({"quantization_config": {"quant_method": "awq", "bits": 4, "version": "GEMM",
                      "zero_point": true}})");
  expect_accepted(R"({"quantization_config": {"quant_method": "gptq", "bits": 8, "desc_act": false,
                      "checkpoint_format": "gptq_v2"}})");
}

TEST(Quantization, RefusesModesByName) {
  expect_refused(R"({"quantization": {"bits": 4, "lm_head": {"mode": "mxfp6"}}})",
                 {"quantization.lm_head", "mxfp6"});
  expect_refused(R"({"text_config": {"quantization": {"mode": "nf4"}}})",
                 {"text_config.quantization", "nf4"});
}

TEST(Quantization, RefusesMethodsByName) {
  for (const char* method : {"bitsandbytes", "hqq", "exl2", "quark"}) {
    const Json config{{"quantization_config", {{"quant_method", method}}}};
    expect_refused(dump_json(config), {"config.json: quantization_config", method});
  }
}

TEST(Quantization, RefusesSettingsByName) {
  expect_refused(block(R"("quant_method": "fp8", "fmt": "e5m2")"), {"fmt", "e5m2"});
  expect_refused(block(R"("quant_method": "gptq", "bits": 3)"), {"bits", "3"});
  expect_refused(block(R"("quant_method": "gptq", "desc_act": true)"), {"desc_act", "order"});
  expect_refused(block(R"("quant_method": "gptq", "checkpoint_format": "marlin")"), {"marlin"});
  expect_refused(block(R"("quant_method": "awq", "version": "gemv")"), {"version", "gemv"});
  expect_refused(block(R"("quant_method": "awq", "zero_point": false)"), {"zero_point"});
  expect_refused(block(R"("quant_method": "modelopt", "quant_algo": "INT4_AWQ")"), {"INT4_AWQ"});
  const auto weights = [](const std::string& members) {
    return block(
        R"("quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {)" +
        members + "}}}");
  };
  expect_refused(weights(R"("num_bits": 3, "type": "int")"), {"config_groups.group_0", "num_bits"});
  expect_refused(weights(R"("num_bits": 4, "actorder": "group")"), {"actorder", "group"});
  expect_accepted(weights(R"("num_bits": 4, "type": "int", "actorder": "weight")").c_str());
  expect_refused(block(R"("quant_method": "compressed-tensors", "format": "marlin-24")"),
                 {"marlin-24"});
  expect_refused(block(R"("quant_method": "compressed-tensors",
                          "sparsity_config": {"format": "sparse-24-bitmask"})"),
                 {"sparsity_config", "sparse-24-bitmask"});
}

TEST(Quantization, RefusesOtherFp8Blocks) {
  for (const char* size : {"[128, 64]", "[0, 0]", "[-1, -1]", "[128]", "128", "[1.5, 1.5]",
                           "[\"a\", \"a\"]", "[1000000, 1000000]"}) {
    expect_refused(block(R"("quant_method": "fp8", "weight_block_size": )" + std::string(size)),
                   {"two equal positive numbers"});
  }
}

TEST(Quantization, RefusesWrongTypes) {
  for (const char* config : {R"({"quantization": 4})", R"({"quantization": {"mode": 3}})",
                             R"({"quantization_config": {"quant_method": []}})"}) {
    expect_error(Errc::BadInput, {"config.json: quantization"},
                 [&] { check_quantization(parse_json(config, "test"), "config.json"); });
  }
}

TEST(Quantization, Fp8BlockEdge) {
  EXPECT_EQ(fp8_block_edge(Json::object()), 128);
  EXPECT_EQ(fp8_block_edge(parse_json(
                R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [64,64]}})",
                "test")),
            64);
}

TEST(Quantization, Settings) {
  const QuantSettings gptq = quant_settings(parse_json(
      block(
          R"("quant_method": "gptq", "bits": 4, "group_size": -1, "checkpoint_format": "gptq_v2")"),
      "test"));
  EXPECT_EQ(gptq.method, "gptq");
  EXPECT_TRUE(gptq.is_gptq_v2);
  EXPECT_EQ(gptq.bits, std::vector<int>{4});
  EXPECT_EQ(gptq.group_sizes, std::vector<std::int64_t>{0});
  // Rules for single modules: nothing is known of all.
  const QuantSettings ruled = quant_settings(parse_json(
      block(
          R"("quant_method": "gptq", "bits": 4, "group_size": 32, "dynamic": {"+:a": {"bits": 8}})"),
      "test"));
  EXPECT_TRUE(ruled.bits.empty());
  EXPECT_TRUE(ruled.group_sizes.empty());
  EXPECT_TRUE(
      quant_settings(parse_json(R"({"quantization": {"bits": 4}})", "test")).method.empty());
}

// ModelOpt's own file counts where the config says nothing.
TEST(Quantization, SettingsOfModelOptBesideTheConfig) {
  const test::TempDir dir;
  const std::string config = dir.write("config.json", R"({"hidden_size": 8})");
  dir.write("hf_quant_config.json", R"({"producer": {}, "quantization": {"quant_algo": "NVFP4"}})");
  EXPECT_EQ(read_config(config)["quantization_config"]["quant_algo"], "NVFP4");
  dir.write("hf_quant_config.json", R"({"quantization": {"quant_algo": "W4A8_AWQ"}})");
  expect_error(Errc::Unsupported, {"config.json", "W4A8_AWQ"}, [&] { read_config(config); });
  dir.write("hf_quant_config.json", "[]");
  expect_error(Errc::BadInput, {"hf_quant_config.json"}, [&] { read_config(config); });
}

}  // namespace
}  // namespace moeflux
