// Containers of all versions, which are kept for ever, run.
#include <gtest/gtest.h>

#include "convert/scrub.h"
#include "source/safetensors.h"
#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

class ContainerVersion : public testing::TestWithParam<std::string> {
 protected:
  std::string path() const {
    return GetParam() == "container-v1" ? test::fixture_path(GetParam())
                                        : test::data_path("fixtures/" + GetParam());
  }
};

TEST_P(ContainerVersion, ComputesWhatItAlwaysDid) {
  const auto golden = open_tensor_file(path() + "/logits.safetensors");
  const TensorInfo& info = *golden->find("logits");
  std::vector<float> expected(info.bytes / sizeof(float));
  golden->read(info.extent(), std::as_writable_bytes(std::span(expected)));

  test::LoadedModel model(path());
  Session session = model.new_session();
  const std::vector<float> logits =
      model.feed(session, test::golden_prompt(path() + "/logits.safetensors"));
  test::expect_close(logits, std::vector<double>(expected.begin(), expected.end()),
                     test::kGoldenTolerance);
}

TEST_P(ContainerVersion, IsIntact) {
  const auto source = open_source(path());
  const ScrubReport report = scrub(*source, {});
  EXPECT_TRUE(report.damage.empty());
  EXPECT_EQ(report.n_checksums, GetParam() == "container-v3" ? 70u : 41u);
}

INSTANTIATE_TEST_SUITE_P(Kept, ContainerVersion,
                         testing::Values("container-v1", "container-v2", "container-v3"),
                         [](const auto& test) { return "v" + test.param.substr(11); });

}  // namespace
}  // namespace moeflux
