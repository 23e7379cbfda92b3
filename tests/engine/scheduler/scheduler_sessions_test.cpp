#include "engine/scheduler/scheduler_sessions.h"

#include <gtest/gtest.h>

#include "engine/scheduler/scheduler_jobs.h"
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

class SchedulerHooksTest : public testing::TestWithParam<std::string> {
 protected:
  std::string path() const { return source_path("models/" + GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Models, SchedulerHooksTest, testing::Values("demo", "demo-mla"),
                         [](const auto& instance) {
                           return instance.param == "demo" ? "demo" : "demo_mla";
                         });

// Turns of two chats, each turn in a process of its own.
TEST_P(SchedulerHooksTest, ARestartedProcessGoesOnFromTheStore) {
  const TempDir directory;
  Random random(8);
  std::vector<std::vector<TokenId>> chats = {random.tokens(30, 2000), random.tokens(20, 2000)};
  Engine single(path(), scheduler_engine(1));
  for (int turn = 0; turn < 3; ++turn) {
    EngineOptions options = scheduler_engine(2);
    options.n_checkpoints = 1;
    Engine engine(path(), options);
    PrefixStore store({.directory = directory.path(),
                       .worth = {.min_tokens = 1, .min_new = 1, .seconds_per_byte = 0},
                       .block = 16},
                      prefix_identity(engine));
    SessionSync sync(engine, &store);
    SessionHooks hooks;
    add_sync(hooks, sync);
    Scheduler scheduler(engine, {.n_sessions = 2, .hooks = hooks});
    std::vector<std::unique_ptr<Submitted>> jobs;
    std::vector<std::int64_t> known;
    for (const std::vector<TokenId>& chat : chats) {
      AnswerRequest request = random_job(random, 1, 6);
      request.prompt = chat;
      jobs.push_back(std::make_unique<Submitted>(request));
      jobs.back()->submit(scheduler);
    }
    run_all(scheduler);
    for (std::size_t i = 0; i < chats.size(); ++i) {
      const Received& got = jobs[i]->received;
      EXPECT_EQ(got.tokens, run_alone(single, jobs[i]->request).tokens);
      // All but the last answer's last token, which was never run, and the user's new ones.
      const auto n_new = turn == 0 ? std::ssize(chats[i]) : 9;
      EXPECT_EQ(got.started->n_cached, std::ssize(chats[i]) - n_new) << "turn " << turn;
      chats[i].insert(chats[i].end(), got.tokens.begin(), got.tokens.end());
      const std::vector<TokenId> next = random.tokens(8, 2000);
      chats[i].insert(chats[i].end(), next.begin(), next.end());
    }
  }
}

TEST_P(SchedulerHooksTest, DraftersOfEveryKindGiveThePlainAnswers) {
  EngineOptions options = scheduler_engine(3);
  options.max_drafts = 2;
  Engine engine(path(), options);
  Engine single(path(), scheduler_engine(1));
  Random random(12);
  std::vector<AnswerRequest> requests;
  std::vector<std::vector<TokenId>> answers;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(random_job(random, random.integer(2, 70), random.integer(10, 50)));
    if (i % 3 == 2) requests.back().sampling.temperature = 0.8;
    answers.push_back(run_alone(single, requests.back()).tokens);
  }
  for (const DraftOptions& drafts :
       {DraftOptions{.mtp = true, .depth = 2}, DraftOptions{.ngram = true, .depth = 2},
        DraftOptions{.mtp = true, .ngram = true}}) {
    for (const std::size_t draft_jobs : {std::size_t{1}, std::size_t{3}}) {
      SchedulerDrafts drafters(engine, drafts);
      SchedulerOptions scheduler_options{
          .n_sessions = 3, .max_drafts = 2, .draft_jobs = draft_jobs};
      drafters.add_to(scheduler_options.hooks);
      Scheduler scheduler(engine, scheduler_options);
      std::vector<std::unique_ptr<Submitted>> jobs;
      for (const AnswerRequest& request : requests) {
        jobs.push_back(std::make_unique<Submitted>(request));
        jobs.back()->submit(scheduler);
      }
      run_all(scheduler);
      std::int64_t n_drafted = 0, n_accepted = 0;
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        EXPECT_EQ(jobs[i]->received.tokens, answers[i]) << i;
        n_drafted += jobs[i]->received.ended->stats.n_drafted;
        n_accepted += jobs[i]->received.ended->stats.n_accepted;
      }
      if (drafts.mtp && engine.config().mtp && draft_jobs > 1) {
        EXPECT_GT(n_drafted, 0);
        EXPECT_GT(n_accepted, 0);
      }
    }
  }
}

// Guesses of all kinds of quality: right, wrong, and right for a while.
TEST(SchedulerHooks, DraftsChangeThePassesAndNothingElse) {
  constexpr int kSessions = 3;
  EngineOptions options = scheduler_engine(kSessions);
  options.max_drafts = 4;
  Engine engine(source_path("models/demo"), options);
  Random random(17);
  std::vector<AnswerRequest> requests;
  std::vector<std::vector<TokenId>> answers;
  for (int i = 0; i < 5; ++i) {
    requests.push_back(random_job(random, random.integer(3, 60), random.integer(5, 40)));
    requests.back().sampling.temperature = i % 2 == 0 ? 0 : 0.9;
    requests.back().sampling.seed = random.bits();
    answers.push_back(run_alone(engine, requests.back()).tokens);
  }
  const auto draft = [&](const Session& session, TokenId, int count, std::vector<TokenId>& drafts) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const std::vector<TokenId>& prompt = requests[i].prompt;
      const std::span<const TokenId> held = session.tokens();
      if (held.size() < prompt.size() || !std::equal(prompt.begin(), prompt.end(), held.begin()))
        continue;
      std::size_t next = held.size() - prompt.size() + 1;
      for (; count > 0 && next < answers[i].size(); --count, ++next)
        drafts.push_back(random.chance(0.7) ? answers[i][next] : 5);
      return;
    }
  };
  Scheduler scheduler(engine, {.n_sessions = kSessions,
                               .max_drafts = 4,
                               .draft_jobs = kSessions,
                               .hooks = {.draft = draft}});
  std::vector<std::unique_ptr<Submitted>> jobs;
  for (const AnswerRequest& request : requests) {
    jobs.push_back(std::make_unique<Submitted>(request));
    jobs.back()->submit(scheduler);
  }
  run_all(scheduler);
  std::int64_t n_drafted = 0, n_accepted = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(jobs[i]->received.tokens, answers[i]) << i;
    n_drafted += jobs[i]->received.ended->stats.n_drafted;
    n_accepted += jobs[i]->received.ended->stats.n_accepted;
  }
  EXPECT_GT(n_accepted, n_drafted / 4);
  EXPECT_LT(n_accepted, n_drafted);
  std::uint64_t n_tokens = 0;
  for (const auto& answer : answers) n_tokens += answer.size() - 1;
  EXPECT_EQ(scheduler.stats().decode_rows,
            n_tokens + static_cast<std::uint64_t>(n_drafted - n_accepted));
}

TEST(SchedulerHooks, HooksSeeTheSession) {
  Engine engine(source_path("models/demo"), scheduler_engine(1));
  Random random(18);
  std::vector<std::pair<Milestone, std::int64_t>> remembered;
  bool fails = false;
  SessionHooks hooks;
  hooks.sync = [&](Session& session, std::span<const TokenId>) {
    if (fails) fail(Errc::Io, "the store is gone");
    session.reset();
  };
  hooks.remember = [&](const Session& session, Milestone milestone) {
    remembered.emplace_back(milestone, session.length());
    if (milestone == Milestone::Message) fail(Errc::Io, "no space");
  };
  Scheduler scheduler(engine, {.n_sessions = 1, .keep_every = 20, .hooks = hooks});
  AnswerRequest request = random_job(random, 50, 3);
  request.keep_at = {33};
  Submitted job(request), failed(request), again(request);
  job.submit(scheduler);
  run_all(scheduler);
  using Kept = std::pair<Milestone, std::int64_t>;
  EXPECT_EQ(remembered, (std::vector<Kept>{{Milestone::Message, 20},
                                           {Milestone::Message, 33},
                                           {Milestone::Message, 40},
                                           {Milestone::Prompt, 50},
                                           {Milestone::Answer, 52}}));
  EXPECT_EQ(job.received.tokens, run_alone(engine, request).tokens);
  EXPECT_EQ(scheduler.stats().n_not_remembered, 3u);
  fails = true;
  failed.submit(scheduler);
  run_all(scheduler);
  EXPECT_EQ(failed.received.ended->error->code(), Errc::Io);
  fails = false;
  again.submit(scheduler);
  run_all(scheduler);
  EXPECT_EQ(again.received.tokens, job.received.tokens);
}

}  // namespace
}  // namespace moeflux::test
