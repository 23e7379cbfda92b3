// Jobs that are cancelled, receivers that go away, disks that fail: the others do not notice.
#include <atomic>
#include <cerrno>

#include <gtest/gtest.h>

#include "engine/scheduler/scheduler_jobs.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

class SchedulerFailureTest : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int kSessions = 3;

  SchedulerFailureTest() {
    EngineOptions options = scheduler_engine(kSessions);
    single_.emplace(path(), options);
    // Nearly nothing stays in memory, so that every pass reads.
    options.memory_bytes = single_->plan().floor_bytes() + single_->plan().slot_bytes;
    options.lookahead = 0;
    options.reader.filter = [this](const KernelRead&, std::int64_t result) -> std::int64_t {
      return fail_after_-- <= 0 ? -EIO : result;
    };
    engine_.emplace(path(), options);
    scheduler_.emplace(*engine_, SchedulerOptions{.n_sessions = kSessions, .slice_tokens = 8});
  }
  static std::string path() { return source_path("models/" + GetParam()); }

  // One pass with a disk that fails, or fails after so many reads. What the pass had under way
  // fails with it, before the next one can ask for it.
  void fail_a_pass(int n_reads = 0) {
    fail_after_ = n_reads;
    scheduler_->step();
    engine_->experts().finish_warming();
    fail_after_ = kNever;
  }
  Submitted& add(std::int64_t n_prompt, std::int64_t max_tokens) {
    jobs_.push_back(std::make_unique<Submitted>(random_job(random_, n_prompt, max_tokens)));
    jobs_.back()->submit(*scheduler_);
    return *jobs_.back();
  }
  void expect_as_alone(const Submitted& job) {
    ASSERT_TRUE(job.has_ended());
    ASSERT_FALSE(job.received.ended->error) << job.received.ended->error->what();
    EXPECT_EQ(job.received.tokens, run_alone(*single_, job.request).tokens);
  }

  static constexpr int kNever = 1 << 30;
  std::atomic<int> fail_after_ = kNever;  // reads
  Random random_{3};
  std::optional<Engine> single_, engine_;
  std::optional<Scheduler> scheduler_;
  std::vector<std::unique_ptr<Submitted>> jobs_;
};
INSTANTIATE_TEST_SUITE_P(Models, SchedulerFailureTest, testing::Values("demo", "demo-mla"),
                         [](const auto& instance) {
                           return instance.param == "demo" ? "recurrent" : "latent";
                         });

TEST_P(SchedulerFailureTest, AFailingDiskEndsTheJobsOfThatPassOnly) {
  Submitted& decoding = add(10, 40);
  Submitted& reading = add(100, 5);
  Submitted& third = add(12, 30);
  Submitted& waiting = add(15, 6);
  for (int i = 0; i < 4; ++i) scheduler_->step();
  const std::size_t n_before = decoding.received.tokens.size();
  fail_a_pass();
  for (const Submitted* job : {&decoding, &reading, &third}) {
    ASSERT_TRUE(job->has_ended());
    ASSERT_TRUE(job->received.ended->error);
    EXPECT_EQ(job->received.ended->error->code(), Errc::Io);
    EXPECT_NE(std::string(job->received.ended->error->what()).find(path()), std::string::npos)
        << job->received.ended->error->what();
    EXPECT_EQ(job->received.n_events_after_the_end, 0);
  }
  EXPECT_EQ(decoding.received.tokens.size(), n_before);
  EXPECT_FALSE(waiting.has_ended());
  run_all(*scheduler_);
  expect_as_alone(waiting);
  const AnswerRequest again = decoding.request;
  jobs_.push_back(std::make_unique<Submitted>(again));
  Submitted& repeated = *jobs_.back();
  repeated.submit(*scheduler_);
  run_all(*scheduler_);
  expect_as_alone(repeated);
  EXPECT_EQ(scheduler_->stats().n_failed, 3u);
  EXPECT_EQ(scheduler_->stats().n_finished, 2u);
}

// Wherever the disk fails, all others answer as if nothing had been.
TEST_P(SchedulerFailureTest, ADiskThatFailsNowAndThen) {
  std::size_t n_failed = 0;
  for (int round = 0; round < 40 || scheduler_->n_jobs() > 0; ++round) {
    if (round < 40 && scheduler_->n_jobs() < 5) add(random_.integer(1, 40), random_.integer(1, 12));
    if (random_.chance(0.1)) {
      fail_a_pass(static_cast<int>(random_.integer(0, 100)));
    } else {
      scheduler_->step();
    }
  }
  for (const auto& job : jobs_) {
    ASSERT_TRUE(job->has_ended());
    if (job->received.ended->error) {
      ++n_failed;
    } else {
      expect_as_alone(*job);
    }
  }
  EXPECT_GT(n_failed, 0u);
  EXPECT_LT(n_failed, jobs_.size());
  EXPECT_EQ(scheduler_->stats().n_failed, n_failed);
  EXPECT_EQ(scheduler_->stats().n_finished, jobs_.size() - n_failed);
}

TEST_P(SchedulerFailureTest, ACancelledJobEndsBeforeTheNextPassAndItsPrefixStays) {
  Submitted& stays = add(20, 20);
  Submitted& decoding = add(10, 100);
  Submitted& reading = add(100, 5);
  Submitted& waiting = add(5, 5);
  for (int i = 0; i < 5; ++i) scheduler_->step();
  const std::int64_t n_read = reading.received.progress.back();
  ASSERT_LT(n_read, 100);
  ASSERT_FALSE(decoding.received.tokens.empty());
  const std::size_t n_tokens = decoding.received.tokens.size();
  for (const Submitted* job : {&decoding, &reading, &waiting}) scheduler_->cancel(job->id);
  scheduler_->cancel(987654);
  scheduler_->step();
  EXPECT_EQ(scheduler_->last_pass().size(), 1u);
  for (const Submitted* job : {&decoding, &reading, &waiting}) {
    ASSERT_TRUE(job->has_ended());
    EXPECT_EQ(job->received.ended->reason, StopReason::Cancelled);
    EXPECT_FALSE(job->received.ended->error);
  }
  EXPECT_FALSE(waiting.received.started);
  EXPECT_EQ(waiting.received.ended->stats.prefill_seconds, 0);
  EXPECT_EQ(reading.received.progress.back(), n_read);
  EXPECT_EQ(decoding.received.tokens.size(), n_tokens);

  jobs_.push_back(std::make_unique<Submitted>(reading.request));
  Submitted& again = *jobs_.back();
  again.submit(*scheduler_);
  run_all(*scheduler_);
  EXPECT_EQ(again.received.started->n_cached, n_read);
  expect_as_alone(again);
  expect_as_alone(stays);
  EXPECT_EQ(scheduler_->stats().n_cancelled, 3u);
}

TEST_P(SchedulerFailureTest, AReceiverThatThrowsIsCancelled) {
  Submitted& stays = add(20, 10);
  int n_calls = 0;
  scheduler_->submit(random_job(random_, 10, 50), [&](JobId, const JobEvent& event) {
    ++n_calls;
    if (std::holds_alternative<JobToken>(event)) throw std::runtime_error("gone");
  });
  run_all(*scheduler_);
  EXPECT_EQ(n_calls, 3);  // started, progress, token
  expect_as_alone(stays);
  EXPECT_EQ(scheduler_->stats().n_cancelled, 1u);
}

TEST_P(SchedulerFailureTest, AReceiverMaySubmitAndCancel) {
  Submitted& stays = add(20, 10);
  std::optional<JobEnded> ended;
  bool next_ended = false;
  const AnswerRequest next = random_job(random_, 8, 2);
  scheduler_->submit(random_job(random_, 10, 50), [&](JobId id, const JobEvent& event) {
    if (std::holds_alternative<JobToken>(event)) scheduler_->cancel(id);
    if (const auto* e = std::get_if<JobEnded>(&event)) {
      ended = *e;
      scheduler_->submit(next, [&](JobId, const JobEvent& its) {
        next_ended = next_ended || std::holds_alternative<JobEnded>(its);
      });
    }
  });
  run_all(*scheduler_);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->reason, StopReason::Cancelled);
  EXPECT_EQ(ended->stats.n_tokens, 1);
  EXPECT_TRUE(next_ended);
  expect_as_alone(stays);
}

// A request that leaves nothing to draw from fails alone.
TEST_P(SchedulerFailureTest, ADrawThatIsImpossibleEndsItsJobOnly) {
  Submitted& stays = add(20, 10);
  AnswerRequest request = random_job(random_, 10, 5);
  for (TokenId id = 0; id < engine_->config().n_vocab; ++id)
    request.sampling.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
  jobs_.push_back(std::make_unique<Submitted>(std::move(request)));
  Submitted& impossible = *jobs_.back();
  impossible.submit(*scheduler_);
  run_all(*scheduler_);
  ASSERT_TRUE(impossible.received.ended->error);
  EXPECT_EQ(impossible.received.ended->error->code(), Errc::BadInput);
  expect_as_alone(stays);
}

// Also where a pass failed half-way.
TEST_P(SchedulerFailureTest, TheSharesOfWhatWasReadAddUp) {
  for (int i = 0; i < 7; ++i) add(random_.integer(1, 30), random_.integer(1, 10));
  const std::uint64_t before = engine_->experts().stats().bytes_read;
  for (int i = 0; i < 3; ++i) scheduler_->step();
  fail_a_pass(40);
  run_all(*scheduler_);
  EXPECT_EQ(scheduler_->stats().n_failed, 3u);
  std::uint64_t sum = 0;
  for (const auto& job : jobs_) {
    EXPECT_GT(job->received.ended->stats.bytes_read, 0u);
    sum += job->received.ended->stats.bytes_read;
  }
  EXPECT_EQ(sum, engine_->experts().stats().bytes_read - before);
  EXPECT_EQ(sum, scheduler_->stats().bytes_read);
}

}  // namespace
}  // namespace moeflux::test
