// The original's suite of consecutive prompts, and what evaluation promises.
#include <cmath>

#include "capi/handles.h"

namespace moeflux::test {
namespace {

class Evaluation : public testing::TestWithParam<const char*> {
 protected:
  ModelHandle model_ = open_bundled(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Capi, Evaluation, testing::Values("demo", "demo-mla"),
                         [](const auto& model) {
                           return model.param == std::string("demo") ? "Hybrid" : "Latent";
                         });

TEST_P(Evaluation, TheSamePromptTwice) {
  const ContextHandle ctx = new_context(model_);
  const auto first = greedy(ctx, kFirstPrompt, 16);
  mf_memory_clear(ctx.get());
  EXPECT_EQ(greedy(ctx, kFirstPrompt, 16), first);
}

TEST_P(Evaluation, AnotherPromptAfterClear) {
  const ContextHandle fresh = new_context(model_);
  const auto expected = greedy(fresh, kSecondPrompt, 16);
  const ContextHandle dirty = new_context(model_);
  greedy(dirty, kFirstPrompt, 16);
  mf_memory_clear(dirty.get());
  EXPECT_EQ(greedy(dirty, kSecondPrompt, 16), expected);
}

TEST_P(Evaluation, TwoContextsDoNotSeeEachOther) {
  const ContextHandle a = new_context(model_), b = new_context(model_);
  const auto first = greedy(a, kFirstPrompt, 16);
  const auto second = greedy(b, kSecondPrompt, 16);
  EXPECT_NE(first, second);

  // The same again, a step of one and a step of the other.
  mf_memory_clear(a.get());
  mf_memory_clear(b.get());
  std::vector<Logits> mixed_first{eval(a, kFirstPrompt)}, mixed_second{eval(b, kSecondPrompt)};
  for (int i = 0; i < 16; ++i) {
    mixed_first.push_back(eval(a, {most_likely(mixed_first.back())}));
    mixed_second.push_back(eval(b, {most_likely(mixed_second.back())}));
  }
  EXPECT_EQ(mixed_first, first);
  EXPECT_EQ(mixed_second, second);
}

TEST_P(Evaluation, TwoModelsDoNotSeeEachOther) {
  const ModelHandle other = open_bundled(GetParam(), 1);
  const ContextHandle a = new_context(model_), b = new_context(other);
  EXPECT_EQ(greedy(a, kFirstPrompt, 4), greedy(b, kFirstPrompt, 4));
}

// The case the original fails by construction: the recurrent state has to come back.
TEST_P(Evaluation, TruncatingToASharedPrefixAndResuming) {
  const Tokens prefix{1, 100, 500};
  const Tokens one{1000, 2000, 3000 % 2240}, other{4000 % 2240, 5000 % 2240, 6000 % 2240};
  const ContextHandle fresh = new_context(model_);
  eval(fresh, prefix);
  const auto expected = greedy(fresh, other, 16);

  const ContextHandle ctx = new_context(model_);
  eval(ctx, prefix);
  ASSERT_EQ(mf_checkpoint_pos(ctx.get(), prefix.size()), MF_OK) << mf_last_error_message();
  greedy(ctx, one, 16);
  ASSERT_EQ(mf_memory_seq_rm(ctx.get(), 0, 3, -1), 1) << mf_last_error_message();
  EXPECT_EQ(greedy(ctx, other, 16), expected);
}

TEST_P(Evaluation, SequencesOfOneContextAreIndependent) {
  const ContextHandle ctx = new_context(model_, 2);
  const auto first = greedy(ctx, kFirstPrompt, 8, 0);
  const auto second = greedy(ctx, kSecondPrompt, 8, 7);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 12u);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 7), 12u);
  mf_memory_clear(ctx.get());
  EXPECT_EQ(greedy(ctx, kFirstPrompt, 8, 7), first);
  EXPECT_EQ(greedy(ctx, kSecondPrompt, 8, 0), second);
}

TEST_P(Evaluation, HowTokensAreSplitDoesNotMatter) {
  const Tokens tokens{1, 100, 500, 1000, 2000, 17, 333, 1234, 9, 42, 77};
  const ContextHandle ctx = new_context(model_);
  const Logits whole = eval(ctx, tokens);
  mf_memory_clear(ctx.get());
  Logits last;
  for (const std::int32_t token : tokens) last = eval(ctx, {token});
  EXPECT_EQ(last, whole);
}

TEST_P(Evaluation, LogitsAreFiniteAndChange) {
  const ContextHandle ctx = new_context(model_);
  const auto rows = greedy(ctx, kFirstPrompt, 4);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_TRUE(
        std::all_of(rows[i].begin(), rows[i].end(), [](float x) { return std::isfinite(x); }));
    EXPECT_TRUE(std::any_of(rows[i].begin(), rows[i].end(), [](float x) { return x != 0; }));
    if (i > 0) {
      EXPECT_NE(rows[i], rows[i - 1]);
    }
  }
}

TEST(CapiEvaluation, NoTokensLeaveEverythingAlone) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model);
  Logits logits(mf_n_vocab(ctx.get()), 7.5f);
  EXPECT_EQ(mf_eval_prompt(ctx.get(), nullptr, 0, 0, 0, logits.data()), 0);
  EXPECT_EQ(logits, Logits(logits.size(), 7.5f));
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 0u);
}

TEST(CapiEvaluation, LogitsNeedNotBeWanted) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model);
  const Logits expected = greedy(ctx, kFirstPrompt, 1).back();
  const std::int32_t next = mf_memory_seq_length(ctx.get(), 0) > 4 ? 5 : 0;
  mf_memory_clear(ctx.get());
  EXPECT_EQ(mf_eval_prompt(ctx.get(), kFirstPrompt.data(), 4, 0, 0, nullptr), 0);
  EXPECT_EQ(mf_eval_token(ctx.get(), next, 4, 0, nullptr), 0);
  EXPECT_EQ(mf_memory_seq_length(ctx.get(), 0), 5u);
}

TEST(CapiEvaluation, CountsWhatItDid) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model), idle = new_context(model);
  greedy(ctx, kFirstPrompt, 2);
  mf_stats stats{};
  stats.struct_size = sizeof(stats);
  ASSERT_EQ(mf_get_stats(ctx.get(), &stats), MF_OK);
  EXPECT_EQ(stats.tokens, 6u);
  EXPECT_GT(stats.eval_ns, 0u);
  EXPECT_LE(stats.wait_ns, stats.eval_ns);
  // Eight layers of experts; a pass asks once for each that any of its tokens chose.
  const std::uint64_t asked = stats.experts_hit + stats.experts_missed;
  EXPECT_GE(asked, 3u * 8 * 8);
  EXPECT_LE(asked, 6u * 8 * 8);

  std::uint64_t hits = 0, misses = 0;
  EXPECT_EQ(mf_prefetch_stats(ctx.get(), &hits, &misses), MF_OK);
  EXPECT_EQ(hits, stats.experts_hit);
  EXPECT_EQ(misses, stats.experts_missed);
  mf_reset_prefetch_stats(ctx.get());
  ASSERT_EQ(mf_get_stats(ctx.get(), &stats), MF_OK);
  EXPECT_EQ(stats.experts_hit + stats.experts_missed, 0u);
  EXPECT_EQ(stats.tokens, 6u);
  mf_reset_stats(ctx.get());
  ASSERT_EQ(mf_get_stats(ctx.get(), &stats), MF_OK);
  EXPECT_EQ(stats.tokens, 0u);
  ASSERT_EQ(mf_get_stats(idle.get(), &stats), MF_OK);
  EXPECT_EQ(stats.tokens, 0u);  // what another context of the model does is not counted
}

}  // namespace
}  // namespace moeflux::test
