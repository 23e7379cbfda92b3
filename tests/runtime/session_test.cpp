#include "runtime/session.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace moeflux {
namespace {

using test::expect_error;

ModelConfig config() {
  const GatedAttentionSpec attention{
      .n_heads = 4, .n_kv_heads = 2, .d_head = 8, .rope = make_rope(1e4, 8, false), .scale = 1};
  const GatedDeltaSpec delta{
      .n_key_heads = 1, .n_value_heads = 2, .d_key = 3, .d_value = 5, .conv_width = 4};
  const MlaSpec mla{.n_heads = 2,
                    .q_rank = 0,
                    .kv_rank = 6,
                    .d_nope = 4,
                    .d_rope = 2,
                    .d_value = 4,
                    .rope = make_rope(1e4, 2, true),
                    .scale = 1,
                    .latent_norm_eps = 1e-6f};
  const DenseFfnSpec ffn{.d_ff = 8};
  return {.family = "test",
          .d_model = 8,
          .n_vocab = 10,
          .context_length = 64,
          .norm_eps = 1e-6f,
          .layers = {{attention, ffn}, {delta, ffn}, {mla, ffn}},
          .mtp = LayerSpec{attention, ffn}};
}

// Keys and values of 2 x 8, a convolution of 3 x (2 * 3 + 10), a state of 2 x 3 x 5, a latent of 6
// and a rotary key of 2.
TEST(Session, ReservesWhatItsStatesTake) {
  const std::uint64_t attention = 2 * 20 * 2 * 8 * 4, delta = (3 * 16 + 2 * 3 * 5) * 4,
                      latent = 20 * (6 + 2) * 4;
  EXPECT_EQ(Session::bytes_needed(config(), 20), 2 * attention + delta + latent);
  MemoryBudget budget(1 << 20);
  {
    const Session session(config(), 20, budget);
    EXPECT_EQ(budget.by_tag().at("context"), Session::bytes_needed(config(), 20));
    EXPECT_EQ(session.max_length(), 20);
    EXPECT_EQ(session.length(), 0);
  }
  EXPECT_EQ(budget.available(), 1u << 20);
}

TEST(Session, RefusesMoreThanTheBudget) {
  MemoryBudget budget(1000);
  expect_error(Errc::OutOfMemory, {"context"}, [&] { Session session(config(), 20, budget); });
  EXPECT_EQ(budget.available(), 1000u);
}

TEST(Session, BuffersHaveTheirSizes) {
  MemoryBudget budget(1 << 20);
  Session session(config(), 20, budget);
  EXPECT_EQ(std::get<AttentionState>(session.layer(0)).k.size(), 20u * 16 * 4);
  EXPECT_EQ(std::get<AttentionState>(session.layer(0)).v.size(), 20u * 16 * 4);
  EXPECT_EQ(std::get<DeltaState>(session.layer(1)).conv.size(), 3u * 16 * 4);
  EXPECT_EQ(std::get<DeltaState>(session.layer(1)).s.size(), 2u * 3 * 5 * 4);
  EXPECT_EQ(std::get<LatentState>(session.layer(2)).latent.size(), 20u * 6 * 4);
  EXPECT_EQ(std::get<LatentState>(session.layer(2)).rope_key.size(), 20u * 2 * 4);
  EXPECT_EQ(std::get<AttentionState>(session.mtp()).k.size(), 20u * 16 * 4);
}

TEST(Session, LengthAdvancesOnCommitOnly) {
  MemoryBudget budget(1 << 20);
  Session session(config(), 20, budget);
  session.begin(7);
  EXPECT_EQ(session.length(), 0);
  session.commit(7);
  EXPECT_EQ(session.length(), 7);
  session.commit_mtp(3);
  EXPECT_EQ(session.mtp_length(), 3);
}

TEST(Session, TheContextIsExact) {
  MemoryBudget budget(1 << 20);
  Session session(config(), 20, budget);
  expect_error(Errc::LimitExceeded, {"21 tokens", "20", "0 are used"}, [&] { session.begin(21); });
  session.begin(20);  // the refused one left no mark
  session.commit(20);
  expect_error(Errc::LimitExceeded, {"1 tokens", "20 are used"}, [&] { session.begin(1); });
  EXPECT_EQ(session.length(), 20);
}

TEST(Session, APassThatDidNotEndPoisonsUntilReset) {
  MemoryBudget budget(1 << 20);
  Session session(config(), 20, budget);
  session.begin(5);
  session.commit(5);
  session.begin(1);  // and never committed
  expect_error(Errc::BadInput, {"reset"}, [&] { session.begin(1); });
  expect_error(Errc::BadInput, {"reset"}, [&] { session.begin(1); });
  EXPECT_EQ(session.length(), 5);
  session.reset();
  EXPECT_EQ(session.length(), 0);
  EXPECT_EQ(session.mtp_length(), 0);
  EXPECT_NO_THROW(session.begin(20));
}

TEST(Session, ResetClearsWhatIsReadFromTheStart) {
  MemoryBudget budget(1 << 20);
  Session session(config(), 20, budget);
  auto& state = std::get<DeltaState>(session.layer(1));
  for (AlignedBuffer* buffer : {&state.conv, &state.s}) {
    for (std::size_t i = 0; i < buffer->size() / 4; ++i) buffer->floats()[i] = 1;
  }
  session.reset();
  for (const AlignedBuffer* buffer : {&state.conv, &state.s}) {
    for (std::size_t i = 0; i < buffer->size() / 4; ++i) ASSERT_EQ(buffer->floats()[i], 0.0f);
  }
}

}  // namespace
}  // namespace moeflux
