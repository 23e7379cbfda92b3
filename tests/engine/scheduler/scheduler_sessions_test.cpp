#include "engine/scheduler/scheduler_sessions.h"

#include <gtest/gtest.h>

#include "engine/scheduler_jobs.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

using Tokens = std::vector<TokenId>;

class SessionPoolTest : public testing::Test {
 protected:
  explicit SessionPoolTest(const std::string& model = "models/demo")
      : engine_(source_path(model), options()) {}

  static EngineOptions options() {
    EngineOptions options = scheduler_engine(3);
    options.n_checkpoints = 2;
    return options;
  }
  void feed(Session& session, const Tokens& tokens) { engine_.prefill(session, tokens); }

  Engine engine_;
};

class LatentSessionPoolTest : public SessionPoolTest {
 protected:
  LatentSessionPoolTest() : SessionPoolTest("models/demo-mla") {}
};

TEST_F(SessionPoolTest, ARecurrentSessionServesWhatItHasKept) {
  Session session = engine_.new_session();
  EXPECT_EQ(reusable_length(session, Tokens{1, 2}), 0);
  feed(session, {1, 2, 3});
  session.checkpoint();
  feed(session, {4, 5});
  EXPECT_EQ(reusable_length(session, Tokens{1, 2, 3, 4, 5, 6}), 5);
  EXPECT_EQ(reusable_length(session, Tokens{1, 2, 3, 4, 5}), 3);  // its last token must be run
  EXPECT_EQ(reusable_length(session, Tokens{1, 2, 3, 9, 5, 6}), 3);
  EXPECT_EQ(reusable_length(session, Tokens{1, 2, 9}), 0);
  EXPECT_EQ(reusable_length(session, Tokens{}), 0);
}

TEST_F(LatentSessionPoolTest, OthersServeEveryBeginning) {
  Session session = engine_.new_session();
  feed(session, {1, 2, 3, 4, 5});
  EXPECT_EQ(reusable_length(session, Tokens{1, 2, 3, 4, 5, 6}), 5);
  EXPECT_EQ(reusable_length(session, Tokens{1, 2, 3, 4, 5}), 4);
  EXPECT_EQ(reusable_length(session, Tokens{1, 2, 9}), 2);
}

TEST_F(LatentSessionPoolTest, TheLongestBeginningThenTheOneFreeLongest) {
  SessionPool pool(engine_, 3);
  EXPECT_EQ(pool.size(), 3u);
  Session* a = pool.take(Tokens{1});
  Session* b = pool.take(Tokens{1});
  Session* c = pool.take(Tokens{1});
  EXPECT_EQ(pool.take(Tokens{1}), nullptr);
  EXPECT_EQ(pool.n_free(), 0u);
  feed(*a, {1, 2, 3});
  feed(*b, {1, 2, 4, 5});
  feed(*c, {7, 8});
  pool.give_back(b);
  pool.give_back(c);
  pool.give_back(a);
  EXPECT_EQ(pool.take(Tokens{1, 2, 4, 6}), b);  // three in common
  EXPECT_EQ(pool.take(Tokens{1, 2, 9, 9}), a);
  EXPECT_EQ(pool.n_free(), 1u);
  pool.give_back(a);
  pool.give_back(b);
  EXPECT_EQ(pool.take(Tokens{30, 31}), c);  // nothing in common: free since the longest time
  EXPECT_EQ(pool.take(Tokens{30, 31}), a);
}

TEST_F(SessionPoolTest, APoisonedSessionGoesBackToWhatItHasKept) {
  SessionPool pool(engine_, 1);
  Session* session = pool.take(Tokens{1});
  feed(*session, {1, 2, 3});
  session->checkpoint();
  feed(*session, {4});
  session->begin(1);  // a pass that never ends
  ASSERT_TRUE(session->is_poisoned());
  pool.give_back(session);
  EXPECT_FALSE(session->is_poisoned());
  EXPECT_EQ(session->length(), 3);
  EXPECT_EQ(reusable_length(*session, Tokens{1, 2, 3, 4}), 3);
}

TEST_F(SessionPoolTest, NeedsASession) {
  expect_error(Errc::BadInput, {"0"}, [&] { SessionPool(engine_, 0); });
}

}  // namespace
}  // namespace moeflux::test
