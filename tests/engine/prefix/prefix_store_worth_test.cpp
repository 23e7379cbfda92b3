#include <gtest/gtest.h>

#include "engine/prefix/prefix_store.h"
#include "engine/prefix/session_sync_fixture.h"

namespace moeflux::test {
namespace {

constexpr std::uint64_t kState = 64'000'000;  // of a model whose tokens take 20 ms to read
constexpr PrefixWorth kDefault = {};

PrefixGain gain(std::int64_t n_tokens, std::int64_t n_stored) {
  return {.n_tokens = n_tokens, .n_stored = n_stored, .bytes = kState, .seconds_per_token = 0.02};
}

TEST(PrefixWorthTest, AShortBeginningIsNot) {
  EXPECT_FALSE(is_worth_storing(kDefault, gain(20, 0)));
  EXPECT_FALSE(is_worth_storing(kDefault, gain(63, 0)));
  EXPECT_TRUE(is_worth_storing(kDefault, gain(64, 0)));
}

TEST(PrefixWorthTest, ATurnOfAChatIs) {
  EXPECT_TRUE(is_worth_storing(kDefault, gain(630, 600)));
  EXPECT_FALSE(is_worth_storing(kDefault, gain(615, 600)));
}

// 64 MB take 64 ms there and back.
TEST(PrefixWorthTest, WhereReadingAgainIsAsFastTheFileIsNot) {
  PrefixGain turn = gain(640, 600);
  turn.seconds_per_token = 0.00011;
  EXPECT_TRUE(is_worth_storing(kDefault, turn));
  turn.seconds_per_token = 0.00009;
  EXPECT_FALSE(is_worth_storing(kDefault, turn));
  turn.seconds_per_token = 0;  // not known
  EXPECT_TRUE(is_worth_storing(kDefault, turn));
}

class StoredWorthTest : public SessionSyncTest {
 protected:
  StoredWorthTest()
      : engine_(source_path("models/demo"), small_options(KvType::F32, /*n_checkpoints=*/2)),
        store_({.directory = directory_.path(), .worth = {.seconds_per_byte = 0}},
               prefix_identity(engine_)) {}

  Engine engine_;
  PrefixStore store_;
  SessionSync sync_{engine_, &store_};
};

TEST_F(StoredWorthTest, TenShortQuestionsWriteNothing) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    Session session = engine_.new_session();
    sync_.prefill(session, Random(i).tokens(20, engine_.config().n_vocab), Positions{15});
    EXPECT_FALSE(sync_.remember(session));
    EXPECT_TRUE(session.has_checkpoint(20));  // memory costs nothing
  }
  EXPECT_EQ(store_.stats().bytes_written, 0u);
  EXPECT_TRUE(files().empty());
}

TEST_F(StoredWorthTest, AChatIsKeptFromWhereItIsLongEnough) {
  const std::vector<TokenId> chat = Random(3).tokens(160, engine_.config().n_vocab);
  Session session = engine_.new_session();
  sync_.prefill(session, chat, Positions{30, 63, 64, 80, 88, 120});
  Session next = engine_.new_session();
  const auto found = [&](std::size_t n) {
    return sync_.sync(next, std::span(chat).first(n)).n_tokens;
  };
  EXPECT_EQ(found(64), 0);
  next.reset();
  EXPECT_EQ(found(80), 64);
  next.reset();
  EXPECT_EQ(found(88), 64);  // 80 is 16 tokens more
  next.reset();
  EXPECT_EQ(found(160), 120);
}

TEST_F(StoredWorthTest, TheEngineKnowsWhatReadingTakes) {
  EXPECT_EQ(engine_.seconds_per_prompt_token(), 0);
  Session session = engine_.new_session();
  engine_.prefill(session, Random(1).tokens(8, engine_.config().n_vocab));
  EXPECT_EQ(engine_.seconds_per_prompt_token(), 0);
  engine_.prefill(session, Random(1).tokens(32, engine_.config().n_vocab));
  EXPECT_GT(engine_.seconds_per_prompt_token(), 0);
}

}  // namespace
}  // namespace moeflux::test
