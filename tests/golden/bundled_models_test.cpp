// The models that ship with the project: large enough that every loop is shared between threads,
// every expert is evicted and read again, and every layout holds the same weights.
#include <gtest/gtest.h>

#include "support/flash_moe_writer.h"
#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_same_bits;
using test::FlashMoeOptions;
using test::LoadedModel;

class Bundled : public testing::TestWithParam<std::string> {
 protected:
  std::string path() const { return test::source_path("models/" + GetParam()); }

  // The golden prompts, or random tokens where ../shared is absent.
  std::vector<std::vector<std::int32_t>> prompts() const {
    const std::string golden =
        test::shared_path((GetParam() == "demo" ? "demo-model" : "demo-model-mla") +
                          std::string("/golden/golden.safetensors"));
    if (!file_exists(golden))
      return {test::Random(1).tokens(90, 2000), test::Random(2).tokens(33, 2000)};
    std::vector<std::vector<std::int32_t>> list;
    for (const char* key : {"p0.ids", "p1.ids", "p2.ids"})
      list.push_back(test::golden_prompt(golden, key));
    return list;
  }

  std::vector<float> logits(const std::string& from, const test::LoadOptions& options,
                            std::int64_t chunk = 0) const {
    LoadedModel model(from, options);
    std::vector<float> all;
    for (const auto& prompt : prompts()) {
      Session session = model.new_session();
      const std::vector<float> some = model.feed(session, prompt, chunk);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  static test::LoadOptions roomy() { return {.max_tokens = 512, .max_length = 512}; }
};

TEST_P(Bundled, ThreadsCachePiecesAndInstructionsChangeNothing) {
  const std::vector<float> want = logits(path(), roomy());
  auto options = roomy();
  options.n_threads = 3;
  options.cache_slots = 1;
  expect_same_bits(want, logits(path(), options, 11), "3 threads, 1 slot, pieces of 11");
  options = roomy();
  options.isa = "scalar";
  options.cache_slots = 20;
  expect_same_bits(want, logits(path(), options), "scalar, 20 slots");
}

TEST_P(Bundled, TheFlashMoeLayoutHoldsTheSameModel) {
  const std::vector<float> want = logits(path(), roomy());
  for (const auto tree :
       {FlashMoeOptions::Tree::OneDirectory, FlashMoeOptions::Tree::ParentOfThree}) {
    const test::TempDir dir;
    test::write_flash_moe(*open_source(path()), dir.path(), {.tree = tree});
    expect_same_bits(want, logits(dir.path(), roomy()));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Bundled, testing::Values("demo", "demo-mla"),
                         [](const auto& test) {
                           return test.param == "demo" ? "demo" : "demo_mla";
                         });

}  // namespace
}  // namespace moeflux
