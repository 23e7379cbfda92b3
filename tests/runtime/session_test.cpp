#include "runtime/session.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/loaded_model.h"

namespace moeflux {
namespace {

using test::expect_error;

ModelConfig config() {
  const AttentionSpec attention{
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
  const std::uint64_t delta = (3 * 16 + 2 * 3 * 5) * 4;
  // Per position: keys and values of two layers, and a latent with its rotary key.
  const auto expect = [&](KvType type, std::uint64_t of_attention, std::uint64_t of_latent) {
    const std::uint64_t each = 2 * 2 * 2 * of_attention + of_latent;
    EXPECT_EQ(Session::bytes_needed(config(), {32, type}), 32 * each + delta);
    EXPECT_EQ(Session::bytes_needed(config(), {20, type}), 32 * each + delta);  // whole tiles
    EXPECT_EQ(Session::bytes_needed(config(), {0, type}), delta);
    EXPECT_EQ(Session::bytes_per_position(config(), type), each);
  };
  expect(KvType::F32, 8 * 4, 8 * 4);
  expect(KvType::F16, 8 * 2, 8 * 2);
  expect(KvType::BF16, 8 * 2, 8 * 2);
  expect(KvType::Q8, 8 + 2, 8 + 2);
  MemoryBudget budget(1 << 20);
  {
    const Session session(config(), {20, KvType::F16}, test::host_backend(), budget);
    EXPECT_EQ(budget.by_tag().at("context"), Session::bytes_needed(config(), {20, KvType::F16}));
    EXPECT_EQ(session.max_length(), 20);
    EXPECT_EQ(session.length(), 0);
  }
  EXPECT_EQ(budget.available(), 1u << 20);
}

TEST(Session, RefusesMoreThanTheBudget) {
  MemoryBudget budget(1000);
  expect_error(Errc::OutOfMemory, {"context"},
               [&] { Session session(config(), {20}, test::host_backend(), budget); });
  EXPECT_EQ(budget.available(), 1000u);
}

TEST(Session, CachesHaveTheirShapes) {
  MemoryBudget budget(1 << 20);
  Session session(config(), {20, KvType::BF16}, test::host_backend(), budget);
  const auto expect = [](const KvView& view, KvLayout layout, int n_heads, int d) {
    EXPECT_EQ(view.shape.type, KvType::BF16);
    EXPECT_EQ(view.shape.layout, layout);
    EXPECT_EQ(view.shape.n_heads, n_heads);
    EXPECT_EQ(view.shape.d, d);
    EXPECT_EQ(view.shape.capacity, 20);
  };
  for (LayerState* layer : {&session.layer(0), &session.mtp()}) {
    expect(std::get<AttentionState>(*layer).k.view(), KvLayout::Tiles, 2, 8);
    expect(std::get<AttentionState>(*layer).v.view(), KvLayout::Rows, 2, 8);
  }
  expect(std::get<LatentState>(session.layer(2)).kv.view(), KvLayout::Rows, 1, 8);
  EXPECT_EQ(std::get<DeltaState>(session.layer(1)).conv->bytes(), 3u * 16 * 4);
  EXPECT_EQ(std::get<DeltaState>(session.layer(1)).s->bytes(), 2u * 3 * 5 * 4);
}

TEST(Session, LengthAdvancesOnCommitOnly) {
  MemoryBudget budget(1 << 20);
  Session session(config(), {20}, test::host_backend(), budget);
  session.begin(7);
  EXPECT_EQ(session.length(), 0);
  session.commit(std::vector<TokenId>(7));
  EXPECT_EQ(session.length(), 7);
  session.commit_mtp(3);
  EXPECT_EQ(session.mtp_length(), 3);
}

TEST(Session, TheContextIsExact) {
  MemoryBudget budget(1 << 20);
  Session session(config(), {20}, test::host_backend(), budget);
  expect_error(Errc::LimitExceeded, {"21 tokens", "20", "0 are used"}, [&] { session.begin(21); });
  session.begin(20);  // the refused one left no mark
  session.commit(std::vector<TokenId>(20));
  expect_error(Errc::LimitExceeded, {"1 tokens", "20 are used"}, [&] { session.begin(1); });
  EXPECT_EQ(session.length(), 20);
}

TEST(Session, APassThatDidNotEndPoisonsUntilReset) {
  MemoryBudget budget(1 << 20);
  Session session(config(), {20}, test::host_backend(), budget);
  session.begin(5);
  session.commit(std::vector<TokenId>(5));
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
  Session session(config(), {20}, test::host_backend(), budget);
  auto& state = std::get<DeltaState>(session.layer(1));
  for (const Buffer* buffer : {state.conv.get(), state.s.get()})
    std::fill_n(buffer->host(), buffer->bytes(), std::byte{1});
  session.reset();
  for (const Buffer* buffer : {state.conv.get(), state.s.get()}) {
    for (std::size_t i = 0; i < buffer->bytes(); ++i) ASSERT_EQ(buffer->host()[i], std::byte{0});
  }
}

}  // namespace
}  // namespace moeflux
