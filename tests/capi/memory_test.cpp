// The original's smoke test of lengths, and going back.
#include "capi/handles.h"

namespace moeflux::test {
namespace {

TEST(CapiMemory, LengthsOfTheSmokeTest) {
  for (const char* name : {"demo", "demo-mla"}) {
    const ModelHandle model = open_bundled(name);
    const ContextHandle ctx = new_context(model);
    EXPECT_EQ(mf_memory_seq_pos_max(ctx.get(), 0), -1);
    eval(ctx, kFirstPrompt);
    EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 4u);
    EXPECT_EQ(mf_memory_seq_pos_max(ctx.get(), 0), 3);
    std::vector<unsigned char> state(mf_state_size(ctx.get()));
    ASSERT_EQ(mf_state_save(ctx.get(), state.data(), state.size()),
              static_cast<std::int64_t>(state.size()));
    ASSERT_EQ(mf_checkpoint_pos(ctx.get(), 4), MF_OK);
    eval(ctx, {7});
    eval(ctx, {8});
    EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 6u);
    EXPECT_EQ(mf_memory_seq_rm(ctx.get(), 0, 4, -1), 1) << mf_last_error_message();
    EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 4u);
    EXPECT_EQ(mf_state_load(ctx.get(), state.data(), state.size()), 0) << mf_last_error_message();
    EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 4u);
    mf_memory_clear(ctx.get());
    EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 0u);
    EXPECT_EQ(mf_memory_seq_pos_max(ctx.get(), 0), -1);
  }
}

TEST(CapiMemory, RecurrentStateThatIsGoneIsSaidAndNothingChanges) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model), straight = new_context(model);
  eval(ctx, kFirstPrompt);
  EXPECT_EQ(mf_memory_seq_rm(ctx.get(), 0, 2, -1), 0);
  EXPECT_EQ(mf_last_error(), MF_ERROR_NEEDS_REBUILD);
  EXPECT_NE(std::string(mf_last_error_message()).find("mf_memory_seq_rebuild"), std::string::npos);
  EXPECT_EQ(mf_memory_seq_nearest(ctx.get(), 0, 2), 0);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 4u);
  EXPECT_EQ(eval(ctx, {9}), (eval(straight, kFirstPrompt), eval(straight, {9})));
}

TEST(CapiMemory, RebuildReplaysFromTheNearestState) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model), straight = new_context(model);
  const Tokens tokens{1, 100, 500, 1000, 2000, 17, 333};
  eval(ctx, {1, 100});
  ASSERT_EQ(mf_checkpoint_pos(ctx.get(), 2), MF_OK);
  eval(ctx, {tokens.begin() + 2, tokens.end()});
  EXPECT_EQ(mf_memory_seq_nearest(ctx.get(), 0, 5), 2);
  mf_reset_stats(ctx.get());
  ASSERT_EQ(mf_memory_seq_rebuild(ctx.get(), 0, 5), MF_OK) << mf_last_error_message();
  mf_stats stats{};
  stats.struct_size = sizeof(stats);
  ASSERT_EQ(mf_get_stats(ctx.get(), &stats), MF_OK);
  EXPECT_EQ(stats.tokens, 3u);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 5u);
  eval(straight, {tokens.begin(), tokens.begin() + 5});
  EXPECT_EQ(eval(ctx, {42}), eval(straight, {42}));
  EXPECT_EQ(mf_memory_seq_rebuild(ctx.get(), 0, 7), MF_ERROR_BAD_POSITION);
  EXPECT_EQ(mf_memory_seq_rebuild(ctx.get(), 3, 0), MF_ERROR_NOT_FOUND);
}

TEST(CapiMemory, KeysAndValuesCanBeCutAnywhere) {
  const ModelHandle model = open_bundled("demo-mla");
  const ContextHandle ctx = new_context(model), straight = new_context(model);
  eval(ctx, kFirstPrompt);
  EXPECT_EQ(mf_memory_seq_nearest(ctx.get(), 0, 2), 2);
  EXPECT_EQ(mf_memory_seq_rm(ctx.get(), 0, 2, -1), 1);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 2u);
  eval(straight, {1, 100});
  EXPECT_EQ(eval(ctx, {9}), eval(straight, {9}));
}

TEST(CapiMemory, RangesToRemove) {
  const ModelHandle model = open_bundled("demo-mla");
  const ContextHandle ctx = new_context(model);
  const auto remove = [&](int p0, int p1) {
    mf_memory_clear(ctx.get());
    eval(ctx, kFirstPrompt);
    const int done = mf_memory_seq_rm(ctx.get(), 0, p0, p1);
    return std::pair(done, mf_memory_seq_length(ctx.get(), 0));
  };
  using Result = std::pair<int, std::size_t>;
  EXPECT_EQ(remove(-5, -1), Result(1, 0));
  EXPECT_EQ(remove(0, 4), Result(1, 0));
  EXPECT_EQ(remove(3, 99), Result(1, 3));
  EXPECT_EQ(remove(9, -1), Result(1, 4));  // nothing there
  EXPECT_EQ(remove(2, 2), Result(1, 4));   // an empty range
  EXPECT_EQ(remove(3, 1), Result(1, 4));
  EXPECT_EQ(remove(1, 3), Result(0, 4));  // a hole
  EXPECT_EQ(mf_memory_seq_rm(ctx.get(), 0, 1, 3), 0);
  EXPECT_EQ(mf_last_error(), MF_ERROR_UNSUPPORTED);
  EXPECT_EQ(mf_memory_seq_rm(ctx.get(), 5, 0, -1), 1);  // an unknown sequence is empty
  EXPECT_EQ(mf_memory_seq_rm(ctx.get(), -1, 2, -1), 0);
  EXPECT_EQ(mf_last_error(), MF_ERROR_UNSUPPORTED);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 4u);
  EXPECT_EQ(mf_memory_seq_rm(ctx.get(), -1, 0, -1), 1);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 0u);
}

TEST(CapiMemory, SequencesKnowTheirTokens) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model);
  eval(ctx, kFirstPrompt);
  std::size_t n = 0;
  EXPECT_EQ(mf_memory_seq_tokens(ctx.get(), 0, nullptr, 0, &n), MF_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(n, 4u);
  Tokens tokens(4);
  EXPECT_EQ(mf_memory_seq_tokens(ctx.get(), 0, tokens.data(), 4, &n), MF_OK);
  EXPECT_EQ(tokens, kFirstPrompt);
  EXPECT_EQ(mf_memory_seq_tokens(ctx.get(), 1, nullptr, 0, &n), MF_OK);
  EXPECT_EQ(n, 0u);
}

TEST(CapiMemory, ACopyContinuesAsTheOriginalWould) {
  for (const char* name : {"demo", "demo-mla"}) {
    const ModelHandle model = open_bundled(name);
    const ContextHandle ctx = new_context(model, 2);
    eval(ctx, kFirstPrompt, 0);
    eval(ctx, kSecondPrompt, 1);  // is replaced
    ASSERT_EQ(mf_memory_seq_cp(ctx.get(), 0, 1), MF_OK) << mf_last_error_message();
    Tokens tokens(4);
    std::size_t n = 0;
    EXPECT_EQ(mf_memory_seq_tokens(ctx.get(), 1, tokens.data(), 4, &n), MF_OK);
    EXPECT_EQ(tokens, kFirstPrompt);
    const auto copied = greedy(ctx, {9}, 6, 1);
    EXPECT_EQ(greedy(ctx, {9}, 6, 0), copied);
  }
}

TEST(CapiMemory, SequencesAreFreedAndCounted) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model, 2);
  eval(ctx, {1}, 10);
  eval(ctx, {2}, 20);
  EXPECT_EQ(mf_eval_token(ctx.get(), 3, 0, 30, nullptr), MF_ERROR_LIMIT);
  EXPECT_EQ(mf_memory_seq_cp(ctx.get(), 10, 30), MF_ERROR_LIMIT);
  EXPECT_EQ(mf_memory_seq_free(ctx.get(), 10), MF_OK);
  EXPECT_EQ(mf_memory_seq_free(ctx.get(), 10), MF_OK);
  eval(ctx, {3}, 30);
  EXPECT_EQ(mf_memory_seq_keep(ctx.get(), 30), MF_OK);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 20), 0u);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 30), 1u);
  EXPECT_EQ(mf_memory_seq_keep(ctx.get(), 20), MF_ERROR_NOT_FOUND);
  eval(ctx, {4}, 40);
}

}  // namespace
}  // namespace moeflux::test
