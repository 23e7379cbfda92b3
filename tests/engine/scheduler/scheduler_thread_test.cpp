// Many threads, one engine.
#include "engine/scheduler/scheduler_thread.h"

#include <future>

#include <gtest/gtest.h>

#include "engine/scheduler/scheduler_jobs.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

// What a job was told, for the thread that waits for its end.
class Mailbox {
 public:
  JobSink sink() {
    return [state = state_](JobId, const JobEvent& event) {
      const bool is_first = state->received.tokens.empty();
      state->received(event);
      if (std::holds_alternative<JobToken>(event) && is_first) state->first_token.set_value();
      if (std::holds_alternative<JobEnded>(event)) state->done.set_value();
    };
  }
  const Received& wait() {
    if (!done_.valid()) done_ = state_->done.get_future().share();
    done_.wait();
    return state_->received;
  }
  void wait_for_a_token() { state_->first_token.get_future().wait(); }

 private:
  struct State {
    Received received;  // by the engine's thread, until `done`
    std::promise<void> done, first_token;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::shared_future<void> done_;
};

class SchedulerThreadTest : public testing::Test {
 protected:
  SchedulerThreadTest() : engine_(source_path("models/demo"), scheduler_engine(3)) {}
  Engine engine_;
};

TEST_F(SchedulerThreadTest, ManyThreadsGetTheirOwnAnswers) {
  constexpr int kThreads = 4, kJobs = 5;
  std::vector<std::vector<AnswerRequest>> requests(kThreads);
  std::vector<std::vector<std::vector<TokenId>>> answers(kThreads);
  Random random(41);
  for (auto& list : requests) {
    for (int i = 0; i < kJobs; ++i) {
      list.push_back(random_job(random, random.integer(1, 40), random.integer(1, 12)));
      list.back().sampling.temperature = 0.8;
      list.back().sampling.seed = random.bits();
    }
  }
  {
    SchedulerThread scheduler(engine_, {.n_sessions = 3, .slice_tokens = 8});
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (const AnswerRequest& request : requests[t]) {
          Mailbox mailbox;
          scheduler.submit(request, mailbox.sink());
          answers[t].push_back(mailbox.wait().tokens);
          scheduler.stats();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(scheduler.drain());
    const SchedulerStats stats = scheduler.stats();
    EXPECT_EQ(stats.n_finished, std::uint64_t{kThreads * kJobs});
    EXPECT_EQ(stats.n_running + stats.n_waiting, 0u);
  }
  for (std::size_t t = 0; t < kThreads; ++t) {
    for (std::size_t i = 0; i < kJobs; ++i)
      EXPECT_EQ(answers[t][i], run_alone(engine_, requests[t][i]).tokens);
  }
}

TEST_F(SchedulerThreadTest, CancelFromAnotherThread) {
  SchedulerThread scheduler(engine_, {.n_sessions = 3});
  Random random(2);
  Mailbox mailbox;
  const JobId id = scheduler.submit(random_job(random, 10, 0), mailbox.sink());
  mailbox.wait_for_a_token();
  scheduler.cancel(id);
  const Received& received = mailbox.wait();
  EXPECT_FALSE(received.ended->error);
  EXPECT_TRUE(received.ended->reason == StopReason::Cancelled ||
              received.ended->reason == StopReason::ContextFull);
}

TEST_F(SchedulerThreadTest, StopEndsEveryJob) {
  Random random(5);
  std::vector<Mailbox> mailboxes(8);
  SchedulerThread scheduler(engine_, {.n_sessions = 3});
  for (Mailbox& mailbox : mailboxes) scheduler.submit(random_job(random, 20, 0), mailbox.sink());
  mailboxes[0].wait_for_a_token();
  EXPECT_FALSE(scheduler.drain(std::chrono::milliseconds(0)));
  scheduler.stop();
  for (Mailbox& mailbox : mailboxes) EXPECT_TRUE(mailbox.wait().ended);
  scheduler.stop();
  EXPECT_TRUE(scheduler.drain());
  expect_error(Errc::Cancelled, {"shutting down"},
               [&] { scheduler.submit(random_job(random, 5, 1), {}); });
  expect_error(Errc::Cancelled, {"stopped"}, [&] { scheduler.post([](Scheduler&) {}); });
}

TEST_F(SchedulerThreadTest, DrainLetsJobsFinish) {
  Random random(6);
  std::vector<Mailbox> mailboxes(5);
  SchedulerThread scheduler(engine_, {.n_sessions = 2});
  for (Mailbox& mailbox : mailboxes) scheduler.submit(random_job(random, 10, 4), mailbox.sink());
  EXPECT_TRUE(scheduler.drain());
  for (Mailbox& mailbox : mailboxes) {
    EXPECT_EQ(mailbox.wait().ended->reason, StopReason::MaxTokens);
    EXPECT_EQ(mailbox.wait().tokens.size(), 4u);
  }
}

TEST_F(SchedulerThreadTest, MoreThanMayWaitAreRefusedWithBothNumbers) {
  Random random(7);
  SchedulerThread scheduler(engine_, {.n_sessions = 1, .max_waiting = 2});
  std::promise<void> go, in_pass;
  scheduler.post([&](Scheduler&) {  // the engine's thread stands still
    in_pass.set_value();
    go.get_future().wait();
  });
  in_pass.get_future().wait();
  std::vector<Mailbox> mailboxes(3);
  for (Mailbox& mailbox : mailboxes) scheduler.submit(random_job(random, 5, 2), mailbox.sink());
  EXPECT_EQ(scheduler.stats().n_waiting, 3u);
  expect_error(Errc::LimitExceeded, {"3 requests", "3 are"},
               [&] { scheduler.submit(random_job(random, 5, 2), {}); });
  expect_error(Errc::LimitExceeded, {"161", "160"},
               [&] { scheduler.submit(random_job(random, 161, 2), {}); });
  go.set_value();
  for (Mailbox& mailbox : mailboxes) EXPECT_EQ(mailbox.wait().tokens.size(), 2u);
}

// Also while the very first pass goes on, and no later than a job's receiver knows of its end.
TEST_F(SchedulerThreadTest, CountsJobsAsTheyAre) {
  class Gate : public ForwardObserver {
   public:
    void on_hidden(int index, const float*, std::int64_t) override {
      if (index != 0 || passed_) return;
      passed_ = true;
      reached.set_value();
      go.get_future().wait();
    }
    std::promise<void> reached, go;

   private:
    bool passed_ = false;
  } gate;
  SchedulerThread scheduler(engine_, {.n_sessions = 2, .observer = &gate});
  Random random(8);
  std::promise<void> all_there;
  scheduler.post([&](Scheduler&) { all_there.get_future().wait(); });
  std::vector<Mailbox> mailboxes(3);
  for (Mailbox& mailbox : mailboxes) scheduler.submit(random_job(random, 5, 2), mailbox.sink());
  const auto counts = [&] {
    const SchedulerStats stats = scheduler.stats();
    return std::pair(stats.n_running, stats.n_waiting);
  };
  EXPECT_EQ(counts(), std::pair(std::size_t{0}, std::size_t{3}));
  all_there.set_value();
  gate.reached.get_future().wait();
  EXPECT_EQ(counts(), std::pair(std::size_t{2}, std::size_t{1}));
  Mailbox late;
  scheduler.submit(random_job(random, 5, 2), late.sink());
  EXPECT_EQ(counts(), std::pair(std::size_t{2}, std::size_t{2}));
  gate.go.set_value();
  for (Mailbox& mailbox : mailboxes) mailbox.wait();
  late.wait();
  EXPECT_EQ(counts(), std::pair(std::size_t{0}, std::size_t{0}));
  EXPECT_EQ(scheduler.stats().n_finished, 4u);
}

TEST_F(SchedulerThreadTest, WorkRunsOnTheThreadOfTheEngine) {
  SchedulerThread scheduler(engine_, {.n_sessions = 1});
  std::promise<std::thread::id> first, second;
  scheduler.post([&](Scheduler& s) {
    first.set_value(std::this_thread::get_id());
    EXPECT_EQ(s.n_jobs(), 0u);
    throw std::runtime_error("goes nowhere");
  });
  scheduler.post([&](Scheduler&) { second.set_value(std::this_thread::get_id()); });
  const std::thread::id id = first.get_future().get();
  EXPECT_NE(id, std::this_thread::get_id());
  EXPECT_EQ(id, second.get_future().get());
}

}  // namespace
}  // namespace moeflux::test
