#include "convert/convert_plan.h"

#include <gtest/gtest.h>

#include "support/edited_source.h"
#include "support/expect_error.h"
#include "support/loaded_model.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::fixture_path;

ConvertPlan plan(const ModelSource& source, const std::optional<Requantize>& requantize = {}) {
  return plan_conversion(source, describe_model(source).index, requantize);
}

TEST(ConvertPlan, EveryTensorTheModelUsesAndNoOther) {
  for (const std::string& name : test::fixture_names()) {
    const auto source = open_source(fixture_path(name));
    const ConvertPlan p = plan(*source);
    std::size_t n_expert_tensors = 0;
    for (const auto& [tensor, info] : source->tensors()) {
      const bool routed = tensor.find(".switch_mlp.") != std::string::npos ||
                          tensor.find(".mlp.experts.") != std::string::npos;
      n_expert_tensors += routed ? 1 : 0;
      const bool dense = std::find(p.dense.begin(), p.dense.end(), tensor) != p.dense.end();
      // Fixtures have tensors that no text model uses: a vision tower, copies in the MTP layer.
      EXPECT_FALSE(routed && dense) << tensor;
    }
    EXPECT_GT(n_expert_tensors, 0u) << name;
    EXPECT_LE(p.dense.size() + n_expert_tensors, source->tensors().size()) << name;
    EXPECT_EQ(p.has_fp8, name.ends_with("-fp8"));
  }
}

TEST(ConvertPlan, NamesOfThePlanes) {
  const auto names = [](const std::string& fixture, std::optional<Requantize> requantize = {}) {
    const auto source = open_source(fixture_path(fixture));
    std::vector<std::string> list;
    const ContainerSpec spec = plan(*source, requantize).spec(*source);
    for (const auto& plane : spec.banks[0].planes) {
      list.push_back(plane.name);
    }
    return list;
  };
  const std::string mlx = "language_model.model.layers.0.mlp.switch_mlp.";
  EXPECT_EQ(names("mlx-qwen-3bit"),
            (std::vector<std::string>{
                mlx + "gate_proj.weight", mlx + "gate_proj.scales", mlx + "gate_proj.biases",
                mlx + "up_proj.weight", mlx + "up_proj.scales", mlx + "up_proj.biases",
                mlx + "down_proj.weight", mlx + "down_proj.scales", mlx + "down_proj.biases"}));
  const std::string fp8 = "model.language_model.layers.0.mlp.experts.";
  EXPECT_EQ(names("qwen-fp8"), (std::vector<std::string>{
                                   fp8 + "gate_proj.weight", fp8 + "gate_proj.weight_scale_inv",
                                   fp8 + "up_proj.weight", fp8 + "up_proj.weight_scale_inv",
                                   fp8 + "down_proj.weight", fp8 + "down_proj.weight_scale_inv"}));
  const std::string bf16 = "model.layers.1.mlp.experts.";
  EXPECT_EQ(names("dsv3-kimi"),
            (std::vector<std::string>{bf16 + "gate_proj.weight", bf16 + "up_proj.weight",
                                      bf16 + "down_proj.weight"}));
  EXPECT_EQ(names("dsv3-kimi", Requantize{.bits = 4, .group = 32}).size(), 9u);
}

TEST(ConvertPlan, FewerBitsThanAskedForAreKept) {
  const auto source = open_source(fixture_path("mlx-qwen-mixed"));
  const ConvertPlan p = plan(*source, Requantize{.bits = 3, .group = 32});
  for (const PlannedMatrix& matrix : p.banks[0].matrices) {
    const int had = matrix.from.at(0).format.bits;
    EXPECT_EQ(matrix.requantized, had > 3) << matrix.module;
    EXPECT_EQ(matrix.format.bits, std::min(had, 3));
    EXPECT_EQ(matrix.format.scale_dtype, had > 3 ? DType::BF16 : DType::F16);
  }
}

TEST(ConvertPlan, RefusesWhatCannotBe) {
  const auto source = open_source(fixture_path("dsv3-halfsplit"));
  expect_error(Errc::BadInput, {"56 columns", "64", "nor does any other --group"},
               [&] { plan(*source, Requantize{.bits = 4, .group = 64}); });
  const auto small = open_source(fixture_path("qwen-f16-yarn"));
  expect_error(Errc::BadInput, {"32 columns", "64", "try --group 32"},
               [&] { plan(*small, Requantize{.bits = 4, .group = 64}); });
  expect_error(Errc::BadInput, {"7"}, [&] { plan(*source, Requantize{.bits = 7, .group = 64}); });
  expect_error(Errc::BadInput, {"48"}, [&] { plan(*source, Requantize{.bits = 4, .group = 48}); });
}

TEST(DenseTensors, WalksInTheOrderOfAPass) {
  const auto source = open_source(fixture_path("dsv3-kimi"));
  const std::vector<std::string> names =
      dense_tensor_names(*source, describe_model(*source).index.tensors);
  ASSERT_GT(names.size(), 5u);
  EXPECT_EQ(names.front(), "model.embed_tokens.weight");
  EXPECT_EQ(names[1], "model.layers.0.input_layernorm.weight");
  const std::set<std::string> unique(names.begin(), names.end());
  EXPECT_EQ(unique.size(), names.size());
}

}  // namespace
}  // namespace moeflux
