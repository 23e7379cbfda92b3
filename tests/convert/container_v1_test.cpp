// The container of version 1 that is kept for ever, run.
#include <gtest/gtest.h>

#include "convert/scrub.h"
#include "source/safetensors.h"
#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

TEST(ContainerV1, ComputesWhatItAlwaysDid) {
  const std::string path = test::source_path("tests/fixtures/container-v1");
  const auto golden = open_tensor_file(path + "/logits.safetensors");
  const TensorInfo& info = *golden->find("logits");
  std::vector<float> expected(info.bytes / sizeof(float));
  golden->read(info.extent(), std::as_writable_bytes(std::span(expected)));

  test::LoadedModel model(path);
  Session session = model.new_session();
  const std::vector<float> logits =
      model.feed(session, test::golden_prompt(path + "/logits.safetensors"));
  test::expect_close(logits, std::vector<double>(expected.begin(), expected.end()),
                     test::kGoldenTolerance);
}

TEST(ContainerV1, IsIntact) {
  const auto source = open_source(test::source_path("tests/fixtures/container-v1"));
  const ScrubReport report = scrub(*source, {});
  EXPECT_TRUE(report.damage.empty());
  EXPECT_EQ(report.n_checksums, 41u);
}

}  // namespace
}  // namespace moeflux
