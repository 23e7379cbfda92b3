// The original's suite of checkpoints.
#include "capi/handles.h"

namespace moeflux::test {
namespace {

class Checkpoint : public testing::TestWithParam<const char*> {
 protected:
  ModelHandle model_ = open_bundled(GetParam());
  ContextHandle ctx_ = new_context(model_);

  // Checkpoints at each of the positions, one token after the other.
  void checkpoint_at(std::size_t first, std::size_t last) {
    for (std::size_t pos = mf_memory_seq_length(ctx_.get(), 0); pos <= last; ++pos) {
      if (pos >= first) {
        ASSERT_EQ(mf_checkpoint_pos(ctx_.get(), pos), MF_OK) << mf_last_error_message();
      }
      if (pos < last) eval(ctx_, {static_cast<std::int32_t>(10 + pos)});
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Capi, Checkpoint, testing::Values("demo", "demo-mla"),
                         [](const auto& model) {
                           return model.param == std::string("demo") ? "Hybrid" : "Latent";
                         });

TEST_P(Checkpoint, RoundTripIsBitwise) {
  eval(ctx_, kFirstPrompt);
  ASSERT_EQ(mf_checkpoint_pos(ctx_.get(), 4), MF_OK);
  const auto expected = greedy(ctx_, {9}, 6);
  ASSERT_EQ(mf_restore_to(ctx_.get(), 4), MF_OK);
  EXPECT_EQ(mf_memory_seq_length(ctx_.get(), 0), 4u);
  EXPECT_EQ(greedy(ctx_, {9}, 6), expected);
  ASSERT_EQ(mf_restore_to(ctx_.get(), 4), MF_OK);  // it is still there
  EXPECT_EQ(greedy(ctx_, {9}, 6), expected);
}

TEST_P(Checkpoint, AnUnknownPositionIsNotFound) {
  eval(ctx_, kFirstPrompt);
  ASSERT_EQ(mf_checkpoint_pos(ctx_.get(), 4), MF_OK);
  for (const std::size_t pos : {std::size_t{0}, std::size_t{3}, std::size_t{5}, SIZE_MAX}) {
    EXPECT_EQ(mf_restore_to(ctx_.get(), pos), MF_ERROR_NOT_FOUND);
  }
  EXPECT_EQ(mf_memory_seq_length(ctx_.get(), 0), 4u);
}

TEST_P(Checkpoint, IsTiedToTheRealLength) {
  eval(ctx_, kFirstPrompt);
  EXPECT_EQ(mf_checkpoint_pos(ctx_.get(), 3), MF_ERROR_BAD_POSITION);
  EXPECT_EQ(mf_checkpoint_pos(ctx_.get(), 5), MF_ERROR_BAD_POSITION);
  EXPECT_EQ(mf_checkpoint_count(ctx_.get()), 0u);
}

TEST_P(Checkpoint, ClearDropsAll) {
  checkpoint_at(0, 2);
  EXPECT_EQ(mf_checkpoint_count(ctx_.get()), 3u);
  mf_memory_clear(ctx_.get());
  EXPECT_EQ(mf_checkpoint_count(ctx_.get()), 0u);
  EXPECT_EQ(mf_restore_to(ctx_.get(), 0), MF_ERROR_NOT_FOUND);
}

TEST_P(Checkpoint, TheLastFourAreKept) {
  checkpoint_at(1, 7);
  EXPECT_EQ(mf_checkpoint_count(ctx_.get()), 4u);
  for (const std::size_t pos : {7, 6, 5, 4}) EXPECT_EQ(mf_restore_to(ctx_.get(), pos), MF_OK);
  EXPECT_EQ(mf_restore_to(ctx_.get(), 3), MF_ERROR_NOT_FOUND);
}

TEST_P(Checkpoint, PositionZeroIsNeverEvicted) {
  checkpoint_at(0, 7);
  EXPECT_EQ(mf_checkpoint_count(ctx_.get()), 4u);
  EXPECT_EQ(mf_restore_to(ctx_.get(), 4), MF_ERROR_NOT_FOUND);
  EXPECT_EQ(mf_restore_to(ctx_.get(), 5), MF_OK);
  EXPECT_EQ(mf_restore_to(ctx_.get(), 0), MF_OK);
  EXPECT_EQ(mf_memory_seq_length(ctx_.get(), 0), 0u);
}

TEST_P(Checkpoint, SettingItAgainMakesItTheNewest) {
  checkpoint_at(1, 4);
  ASSERT_EQ(mf_restore_to(ctx_.get(), 2), MF_OK);  // drops 3 and 4
  EXPECT_EQ(mf_checkpoint_count(ctx_.get()), 2u);
  ASSERT_EQ(mf_restore_to(ctx_.get(), 1), MF_OK);
  ASSERT_EQ(mf_checkpoint_pos(ctx_.get(), 1), MF_OK);
  EXPECT_EQ(mf_checkpoint_count(ctx_.get()), 1u);
}

TEST_P(Checkpoint, ForgettingIsIdempotent) {
  checkpoint_at(1, 2);
  EXPECT_EQ(mf_forget_pos(ctx_.get(), 1), MF_OK);
  EXPECT_EQ(mf_forget_pos(ctx_.get(), 1), MF_OK);
  EXPECT_EQ(mf_checkpoint_count(ctx_.get()), 1u);
  EXPECT_EQ(mf_restore_to(ctx_.get(), 1), MF_ERROR_NOT_FOUND);
}

TEST_P(Checkpoint, GoingBackDropsThoseAbove) {
  checkpoint_at(1, 4);
  ASSERT_EQ(mf_memory_seq_rm(ctx_.get(), 0, 2, -1), 1);
  EXPECT_EQ(mf_checkpoint_count(ctx_.get()), 2u);
  EXPECT_EQ(mf_restore_to(ctx_.get(), 3), MF_ERROR_NOT_FOUND);
}

TEST_P(Checkpoint, TheirNumberCanBeChanged) {
  ASSERT_EQ(mf_set_max_checkpoints(ctx_.get(), 2), MF_OK);
  checkpoint_at(1, 5);
  EXPECT_EQ(mf_checkpoint_count(ctx_.get()), 2u);
  ASSERT_EQ(mf_set_max_checkpoints(ctx_.get(), 3), MF_OK);
  checkpoint_at(6, 8);
  EXPECT_EQ(mf_checkpoint_count(ctx_.get()), 3u);
  EXPECT_EQ(mf_restore_to(ctx_.get(), 6), MF_OK);
}

TEST_P(Checkpoint, SequencesHaveTheirOwn) {
  const ContextHandle ctx = new_context(model_, 2);
  eval(ctx, {1, 2}, 0);
  eval(ctx, {3, 4, 5}, 1);
  ASSERT_EQ(mf_seq_checkpoint(ctx.get(), 1, 3), MF_OK);
  EXPECT_EQ(mf_seq_checkpoint_count(ctx.get(), 0), 0u);
  EXPECT_EQ(mf_seq_checkpoint_count(ctx.get(), 1), 1u);
  EXPECT_EQ(mf_seq_restore(ctx.get(), 0, 3), MF_ERROR_NOT_FOUND);
  const Logits expected = eval(ctx, {6}, 1);
  ASSERT_EQ(mf_seq_restore(ctx.get(), 1, 3), MF_OK);
  EXPECT_EQ(eval(ctx, {6}, 1), expected);
}

TEST(CapiCheckpoint, MoreThanMemoryHoldsAreRefused) {
  const ModelHandle model = open_bundled("demo");
  const ContextHandle ctx = new_context(model);
  eval(ctx, kFirstPrompt);
  EXPECT_EQ(mf_set_max_checkpoints(ctx.get(), 1 << 20), MF_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(mf_set_max_checkpoints(ctx.get(), SIZE_MAX), MF_ERROR_BAD_INPUT);
  for (int pos = 4; pos < 10; ++pos) {  // four are still allowed
    ASSERT_EQ(mf_checkpoint_pos(ctx.get(), static_cast<std::size_t>(pos)), MF_OK);
    eval(ctx, {5});
  }
  EXPECT_EQ(mf_checkpoint_count(ctx.get()), 4u);
}

}  // namespace
}  // namespace moeflux::test
