#include "runtime/workspace.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/loaded_model.h"
#include "support/paths.h"
#include "support/random.h"
#include "support/tiny_model.h"

namespace moeflux {
namespace {

TEST(Workspace, FramesAreAStack) {
  MemoryBudget budget(1 << 20);
  Workspace workspace(test::host_backend(), budget, 256);
  EXPECT_EQ(budget.by_tag().at("workspace"), 256u);
  Workspace::Frame outer(workspace);
  EXPECT_EQ(outer.floats(1, 17).offset, 0u);  // takes 32
  EXPECT_EQ(outer.rows_left(8), 4);
  {
    Workspace::Frame inner(workspace);
    EXPECT_EQ(inner.floats(1, 1).offset, 128u);
    const View ints = inner.ints(4, 4);
    EXPECT_EQ(ints.offset, 192u);
    EXPECT_EQ(ints.type, ElementType::I32);
    EXPECT_EQ(workspace.peak_bytes(), 256u);
    EXPECT_THROW(inner.floats(1, 1), std::logic_error);  // full
  }
  EXPECT_EQ(outer.floats(1, 16).offset, 128u);  // the inner frame gave everything back
}

TEST(Workspace, RowsStartOnCacheLines) {
  MemoryBudget budget(1 << 20);
  Workspace workspace(test::host_backend(), budget, 4000);
  Workspace::Frame frame(workspace);
  for (const std::int64_t n : {0, 1, 5, 16, 17, 100}) EXPECT_EQ(frame.floats(1, n).offset % 64, 0u);
  EXPECT_EQ(workspace.peak_bytes(), 64u * (0 + 1 + 1 + 1 + 2 + 7));
}

TEST(Workspace, RefusesMoreThanTheBudget) {
  MemoryBudget budget(1000);
  test::expect_error(Errc::OutOfMemory, {"workspace"},
                     [&] { Workspace workspace(test::host_backend(), budget, 1001); });
}

// The size is measured by a pass that only counts; a pass of exactly that many tokens
// (and the MTP head's) must fit, for every shape.
void run_full_batches(const std::shared_ptr<const ModelSource>& source, const std::string& what) {
  for (const std::int64_t n : {1, 7, 33}) {
    test::LoadedModel model(source, {.max_tokens = n, .max_length = 40});
    test::Random random(5);
    const auto tokens = random.tokens(n, model.config().n_vocab);
    Session session = model.new_session();
    std::vector<float> hidden(static_cast<std::size_t>(n * model.config().d_model));
    std::vector<float> logits(static_cast<std::size_t>(n * model.config().n_vocab));
    const Span span{.session = &session,
                    .tokens = tokens,
                    .logits_of = LogitsOf::EveryToken,
                    .logits = logits.data(),
                    .hidden = hidden.data()};
    ASSERT_NO_THROW(model.forward().run({&span, 1})) << what << ", " << n << " tokens";
    for (const float x : logits) ASSERT_TRUE(std::isfinite(x)) << what;
    if (!model.config().mtp) continue;
    const MtpSpan mtp{
        .session = &session, .hidden = hidden.data(), .tokens = tokens, .logits = logits.data()};
    ASSERT_NO_THROW(model.forward().run_mtp(mtp)) << what;
    for (const float x : logits) ASSERT_TRUE(std::isfinite(x)) << what;
  }
}

TEST(PassMemory, FitsEveryFixture) {
  for (const std::string& name : test::fixture_names()) {
    run_full_batches(open_source(test::fixture_path(name)), name);
  }
}

TEST(PassMemory, FitsRandomShapes) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const test::TempDir dir;
    test::Random random(seed);
    seed % 2 == 0 ? test::write_random_qwen(random, dir.path())
                  : test::write_random_deepseek(random, dir.path());
    run_full_batches(open_source(dir.path()), "seed " + std::to_string(seed));
  }
}

}  // namespace
}  // namespace moeflux
