// A pass over one row of one session is the same list of operations every time, so that a device
// can record it once and replay it.
#include <algorithm>

#include <gtest/gtest.h>

#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/random.h"
#include "support/test_device.h"

namespace moeflux {
namespace {

class Recording : public testing::TestWithParam<std::string> {};

TEST_P(Recording, OneRowIsTheSameListOfOperationsAtEveryPosition) {
  test::TestDevice* device = nullptr;
  test::LoadedModel model(
      test::fixture_path(GetParam()), {.make_backend = [&](const BackendOptions& options) {
        auto made = std::make_unique<test::TestDevice>(
            make_backend(options, "cpu"), test::TestDeviceOptions{.drives_experts = true});
        device = made.get();
        return made;
      }});
  Session session = model.new_session();
  const std::vector<std::int32_t> tokens = test::Random(5).tokens(24, model.config().n_vocab);
  model.feed(session, std::span(tokens).first(20));

  std::vector<std::vector<std::string>> passes(4);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    device->record_to(&passes[i]);
    model.feed(session, std::span(tokens).subspan(20 + i, 1));
  }
  device->record_to(nullptr);
  EXPECT_GT(passes[0].size(), static_cast<std::size_t>(8 * model.config().n_layers()));
  for (std::size_t i = 1; i < passes.size(); ++i) EXPECT_EQ(passes[i], passes[0]) << "pass " << i;
}

// Attention, the gated delta rule and latent attention, with and without dense layers.
INSTANTIATE_TEST_SUITE_P(Fixtures, Recording,
                         testing::Values("qwen-released", "mlx-qwen-mixed", "dsv3-kimi",
                                         "mlx-dsv3-embedq"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moeflux
