// Several jobs on one engine: each answers as if it were alone, whatever happens to the others.
#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/generate.h"
#include "engine/scheduler/scheduler_jobs.h"
#include "support/expect_error.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux::test {
namespace {

void expect_same_answer(const Received& got, const Received& alone, const std::string& what) {
  EXPECT_EQ(got.tokens, alone.tokens) << what;
  expect_same_bits(got.logits, alone.logits, what);
}

AnswerRequest any_job(Random& random, std::int64_t context) {
  AnswerRequest request = random_job(random, random.integer(1, 70), random.integer(1, 25));
  if (random.chance(0.1)) request = random_job(random, context - random.integer(0, 5), 0);
  request.ignore_end = random.chance(0.5);
  request.sampling.temperature = random.chance(0.3) ? 0 : random.between(0.2, 1.5);
  request.sampling.top_k = static_cast<int>(random.integer(0, 40));
  request.sampling.repetition_penalty = random.chance(0.3) ? 1.1 : 1.0;
  request.sampling.seed = random.bits();
  for (int i = 0; i < 3; ++i) request.keep_at.push_back(random.integer(-3, 80));
  return request;
}

class SchedulerModels : public testing::TestWithParam<std::tuple<std::string, KvType>> {};

// Jobs of random kinds arrive at random passes at a scheduler with fewer sessions; some begin as
// others did, so that their sessions go on from there.
TEST_P(SchedulerModels, AnAnswerDoesNotDependOnItsNeighbours) {
  const auto& [model, kv_type] = GetParam();
  EngineOptions options = scheduler_engine(4);
  options.kv_type = kv_type;
  options.n_checkpoints = 2;
  Engine engine(source_path("models/" + model), options);
  options.n_sessions = 1;
  Engine single(source_path("models/" + model), options);
  Random random(static_cast<std::uint64_t>(kv_type) + model.size());

  constexpr std::size_t kJobs = 16;
  std::vector<std::unique_ptr<Submitted>> jobs;
  for (std::size_t i = 0; i < kJobs; ++i) {
    AnswerRequest request = any_job(random, options.context_length);
    if (i > 2 && random.chance(0.6)) {  // goes on from the end of an earlier prompt, or before it
      const auto& before = jobs[i - static_cast<std::size_t>(random.integer(1, 3))]->request.prompt;
      const auto n =
          random.chance(0.6) ? std::ssize(before) : random.integer(1, std::ssize(before));
      request.prompt.insert(request.prompt.begin(), before.begin(), before.begin() + n);
      request.prompt.resize(std::min<std::size_t>(request.prompt.size(), 150));
    }
    jobs.push_back(std::make_unique<Submitted>(std::move(request)));
  }

  Scheduler scheduler(engine, {.n_sessions = 4, .max_waiting = kJobs, .slice_tokens = 7});
  std::size_t n_submitted = 0;
  while (n_submitted < kJobs || scheduler.n_jobs() > 0) {
    while (n_submitted < kJobs && (scheduler.n_jobs() == 0 || random.chance(0.15)))
      jobs[n_submitted++]->submit(scheduler);
    scheduler.step();
  }
  // Two more, of which the second goes on from where the first has been.
  for (const std::int64_t n_prompt : {50, 60}) {
    AnswerRequest request = random_job(random, n_prompt, 5);
    if (n_prompt == 60)
      std::copy_n(jobs.back()->request.prompt.begin(), 50, request.prompt.begin());
    jobs.push_back(std::make_unique<Submitted>(std::move(request)));
    jobs.back()->submit(scheduler);
    run_all(scheduler);
  }
  EXPECT_EQ(jobs.back()->received.started->n_cached, 50);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Received& got = jobs[i]->received;
    ASSERT_TRUE(got.ended && !got.ended->error) << i;
    EXPECT_EQ(got.n_events_after_the_end, 0);
    expect_same_answer(got, run_alone(single, jobs[i]->request), fmt::format("job {}", i));
  }
  EXPECT_EQ(scheduler.stats().n_finished, jobs.size());
}

INSTANTIATE_TEST_SUITE_P(Models, SchedulerModels,
                         testing::Combine(testing::Values("demo", "demo-mla"),
                                          testing::ValuesIn(kAllKvTypes)),
                         [](const auto& instance) {
                           std::string name =
                               fmt::format("{}_{}", std::get<0>(instance.param),
                                           kv_type_name(std::get<1>(instance.param)));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Long prompts of latent attention are computed in a form of their own: in however many passes.
TEST(SchedulerLongPrompts, AnswerAsIfReadAtOnce) {
  EngineOptions options = scheduler_engine(2);
  options.context_length = 600;
  Engine engine(source_path("models/demo-mla"), options);
  options.n_sessions = 1;
  options.max_batch = 600;
  Engine single(source_path("models/demo-mla"), options);
  Random random(3);
  Submitted first(random_job(random, 400, 5)), second(random_job(random, 300, 5));
  Scheduler scheduler(engine, {.n_sessions = 2, .slice_tokens = 50});
  first.submit(scheduler);
  scheduler.step();
  second.submit(scheduler);
  run_all(scheduler);
  expect_same_answer(first.received, run_alone(single, first.request), "first");
  expect_same_answer(second.received, run_alone(single, second.request), "second");
}

class SchedulerTest : public testing::Test {
 protected:
  static constexpr int kSessions = 3;

  explicit SchedulerTest(const EngineOptions& options = scheduler_engine(kSessions))
      : engine_(source_path("models/demo"), options) {}

  Submitted& add(Scheduler& scheduler, AnswerRequest request) {
    jobs_.push_back(std::make_unique<Submitted>(std::move(request)));
    jobs_.back()->submit(scheduler);
    return *jobs_.back();
  }
  Submitted& add(Scheduler& scheduler, std::int64_t n_prompt, std::int64_t max_tokens) {
    return add(scheduler, random_job(random_, n_prompt, max_tokens));
  }
  std::vector<TokenId> alone(const AnswerRequest& request) {
    return run_alone(engine_, request).tokens;
  }
  // Rows of a job in the last pass.
  static std::int64_t rows_of(const Scheduler& scheduler, const Submitted& job) {
    for (const auto& part : scheduler.last_pass()) {
      if (part.job == job.id) return part.n_rows;
    }
    return 0;
  }

  Random random_{17};
  Engine engine_;
  std::vector<std::unique_ptr<Submitted>> jobs_;
};

TEST_F(SchedulerTest, TextAndReasonAreThoseOfGenerate) {
  Scheduler scheduler(engine_, {.n_sessions = kSessions - 1});
  const std::vector<std::vector<std::string>> stops = {{}, {"+", "1"}, {"no such text"}, {" = 42"}};
  std::vector<GenerateResult> wanted;
  for (const auto& stop : stops) {
    ChatRequest chat;
    chat.messages = Json::array({{{"role", "user"}, {"content", "What is 17 + 25?"}}});
    AnswerRequest request;
    request.prompt = engine_.tokenizer().encode(engine_.chat_template().render(chat));
    request.sampling.temperature = 0;
    request.stop = stop;
    Session session = engine_.new_session();
    wanted.push_back(generate(engine_, session, request));
    add(scheduler, {.prompt = request.prompt, .sampling = request.sampling, .stop = stop});
  }
  run_all(scheduler);
  for (std::size_t i = 0; i < stops.size(); ++i) {
    const Received& got = jobs_[i]->received;
    EXPECT_EQ(got.text, wanted[i].text) << i;
    EXPECT_EQ(got.tokens, wanted[i].tokens) << i;
    EXPECT_EQ(got.ended->reason, wanted[i].reason) << i;
    EXPECT_EQ(got.ended->stop.has_value(), wanted[i].reason == StopReason::StopString) << i;
  }
  EXPECT_NE(jobs_[0]->received.text.find("42"), std::string::npos) << jobs_[0]->received.text;
  EXPECT_EQ(jobs_[1]->received.ended->reason, StopReason::StopString);
}

TEST_F(SchedulerTest, EventsComeInOrderWithNumbers) {
  Scheduler scheduler(engine_, {.n_sessions = kSessions});
  EXPECT_FALSE(scheduler.step());
  const Submitted& job = add(scheduler, 150, 5);
  EXPECT_EQ(scheduler.stats().n_waiting, 1u);
  run_all(scheduler);
  const Received& got = job.received;
  ASSERT_TRUE(got.started && got.ended);
  EXPECT_EQ(got.started->n_prompt, 150);
  EXPECT_EQ(got.started->n_cached, 0);
  EXPECT_EQ(got.progress, (std::vector<std::int64_t>{64, 128, 150}));
  EXPECT_EQ(got.tokens.size(), 5u);
  EXPECT_EQ(got.ended->reason, StopReason::MaxTokens);
  EXPECT_EQ(got.ended->stats.n_prompt, 150);
  EXPECT_EQ(got.ended->stats.n_tokens, 5);
  EXPECT_GT(got.ended->stats.prefill_seconds, 0);
  EXPECT_GT(got.ended->stats.decode_seconds, 0);
  const SchedulerStats stats = scheduler.stats();
  EXPECT_EQ(stats.passes, 3u + 4);  // the fifth token is never run
  EXPECT_EQ(stats.prompt_rows, 150u);
  EXPECT_EQ(stats.decode_rows, 4u);
  EXPECT_EQ(stats.n_finished, 1u);
  EXPECT_EQ(stats.n_running + stats.n_waiting, 0u);
}

TEST_F(SchedulerTest, AFullContextEndsTheAnswer) {
  Scheduler scheduler(engine_, {.n_sessions = kSessions});
  const Submitted& job = add(scheduler, 155, 0);
  run_all(scheduler);
  EXPECT_EQ(job.received.ended->reason, StopReason::ContextFull);
  EXPECT_EQ(job.received.tokens.size(), 6u);  // one more than the session can be fed
}

TEST_F(SchedulerTest, StopTokensEndTheAnswer) {
  const AnswerRequest request = random_job(random_, 20, 12);
  const std::vector<TokenId> all = alone(request);
  Scheduler scheduler(engine_, {.n_sessions = kSessions - 1});
  AnswerRequest stopped = request;
  stopped.stop_tokens = {all[7]};
  const Submitted& job = add(scheduler, stopped);
  run_all(scheduler);
  const auto first = std::find(all.begin(), all.end(), all[7]);
  EXPECT_EQ(job.received.tokens, std::vector<TokenId>(all.begin(), first));
  EXPECT_EQ(job.received.ended->reason, StopReason::EndToken);
}

TEST_F(SchedulerTest, RefusesWhatCannotRun) {
  Scheduler scheduler(engine_, {.n_sessions = kSessions, .max_waiting = 2});
  const auto submit = [&](const AnswerRequest& request) { scheduler.submit(request, {}); };
  AnswerRequest request = random_job(random_, 161, 1);
  expect_error(Errc::LimitExceeded, {"161", "160"}, [&] { submit(request); });
  request = random_job(random_, 5, 1);
  request.prompt[3] = static_cast<TokenId>(engine_.config().n_vocab);
  expect_error(Errc::BadInput, {"token 3", std::to_string(request.prompt[3])},
               [&] { submit(request); });
  request.prompt[3] = -1;
  expect_error(Errc::BadInput, {"-1"}, [&] { submit(request); });
  expect_error(Errc::BadInput, {"empty"}, [&] { submit({}); });
  request = random_job(random_, 5, -1);
  expect_error(Errc::BadInput, {"max_tokens", "-1"}, [&] { submit(request); });
  request = random_job(random_, 5, 1);
  request.sampling.top_p = 2;
  expect_error(Errc::BadInput, {"top_p"}, [&] { submit(request); });
  request = random_job(random_, 5, 1);
  request.stop = {""};
  expect_error(Errc::BadInput, {"stop"}, [&] { submit(request); });
  EXPECT_EQ(scheduler.n_jobs(), 0u);

  for (int i = 0; i < kSessions; ++i) add(scheduler, 5, 3);
  scheduler.step();
  for (int i = 0; i < 2; ++i) add(scheduler, 5, 3);
  expect_error(Errc::LimitExceeded, {"3 requests", "2 wait", "2 may"},
               [&] { submit(random_job(random_, 5, 1)); });
  run_all(scheduler);
  EXPECT_EQ(scheduler.stats().n_finished, 5u);
}

TEST_F(SchedulerTest, AnEngineOpenedForFewerSessionsIsRefused) {
  EXPECT_THROW(Scheduler(engine_, {.n_sessions = 0}), Error);
  EXPECT_THROW(Scheduler(engine_, {.n_sessions = 1, .max_drafts = 1}), Error);
  EngineOptions options = scheduler_engine(2);
  options.memory_bytes = Engine(source_path("models/demo"), options).plan().floor_bytes();
  Engine tight(source_path("models/demo"), options);
  expect_error(Errc::OutOfMemory, {"context"}, [&] { Scheduler(tight, {.n_sessions = 4}); });
  Scheduler fits(tight, {.n_sessions = 2});
}

TEST_F(SchedulerTest, ALongPromptDelaysOthersByASliceOnly) {
  constexpr std::int64_t kSlice = 8;
  Scheduler scheduler(engine_, {.n_sessions = kSessions, .slice_tokens = kSlice});
  const Submitted& talker = add(scheduler, 10, 60);
  scheduler.step();
  const Submitted& reader = add(scheduler, 150, 1);
  scheduler.step();
  const Submitted& late = add(scheduler, 5, 10);
  int n_passes = 0;
  while (!reader.has_ended()) {
    const std::size_t n_before = talker.received.tokens.size();
    scheduler.step();
    ++n_passes;
    ASSERT_EQ(talker.received.tokens.size(), n_before + 1);
    ASSERT_EQ(rows_of(scheduler, talker), 1);
    ASSERT_LE(rows_of(scheduler, reader), kSlice);
    EXPECT_TRUE(n_passes < 2 || !late.received.tokens.empty()) << "it had its turn";
  }
  EXPECT_LE(n_passes, 150 / kSlice + 2);
  run_all(scheduler);
  for (const auto& job : jobs_) EXPECT_EQ(job->received.tokens, alone(job->request));
}

TEST_F(SchedulerTest, EveryJobAdvancesWhereABatchIsSmallerThanTheJobs) {
  EngineOptions options = scheduler_engine(5);
  options.max_batch = 2;
  Engine narrow(source_path("models/demo"), options);
  Scheduler scheduler(narrow, {.n_sessions = 5});
  for (int i = 0; i < 5; ++i) add(scheduler, 6 + i, 8);
  run_all(scheduler);
  for (const auto& job : jobs_) EXPECT_EQ(job->received.tokens, alone(job->request));
  EXPECT_EQ(scheduler.stats().passes, (scheduler.stats().rows() + 1) / 2);
}

TEST_F(SchedulerTest, ASessionGoesOnFromWhatItHolds) {
  Scheduler scheduler(engine_, {.n_sessions = kSessions - 1});
  const Submitted& first = add(scheduler, 30, 6);
  const Submitted& other = add(scheduler, 20, 3);
  run_all(scheduler);
  AnswerRequest next = first.request;  // the next turn of a chat
  next.prompt.insert(next.prompt.end(), first.received.tokens.begin(), first.received.tokens.end());
  next.prompt.push_back(11);
  const Submitted& second = add(scheduler, next);
  run_all(scheduler);
  EXPECT_EQ(second.received.started->n_cached, 30 + 5);
  EXPECT_EQ(second.received.progress, std::vector<std::int64_t>{37});
  EXPECT_EQ(second.received.tokens, alone(next));

  // Nothing in common: the session that was free longest is taken.
  add(scheduler, 5, 1);
  run_all(scheduler);
  const Submitted& again = add(scheduler, next);
  run_all(scheduler);
  EXPECT_EQ(again.received.started->n_cached, 0);  // its own end is behind what can be rewound
  EXPECT_EQ(again.received.tokens, second.received.tokens);
  EXPECT_TRUE(other.has_ended());
}

TEST_F(SchedulerTest, CheckpointsAreKeptWhereTheCallerSays) {
  EngineOptions options = scheduler_engine(1);
  options.n_checkpoints = 3;
  Engine engine(source_path("models/demo"), options);
  Scheduler scheduler(engine, {.n_sessions = 1});
  AnswerRequest request = random_job(random_, 90, 4);
  request.keep_at = {40, 70, 500};
  const Submitted& first = add(scheduler, request);
  run_all(scheduler);
  EXPECT_EQ(first.received.progress, (std::vector<std::int64_t>{40, 70, 90}));
  request.prompt[75] = (request.prompt[75] + 1) % 2000;
  const Submitted& second = add(scheduler, request);
  run_all(scheduler);
  EXPECT_EQ(second.received.started->n_cached, 70);
  request.prompt[50] = (request.prompt[50] + 1) % 2000;
  const Submitted& third = add(scheduler, request);
  run_all(scheduler);
  EXPECT_EQ(third.received.started->n_cached, 40);
  for (const auto& job : jobs_) EXPECT_EQ(job->received.tokens, alone(job->request));
}

using Rows = std::vector<std::int64_t>;

PassJob decoding(std::uint64_t last_pass = 0) {
  return {1, true, last_pass};
}
PassJob prompt(std::int64_t n_pending, std::uint64_t last_pass = 0) {
  return {n_pending, false, last_pass};
}
Rows plan(std::vector<PassJob> jobs, std::int64_t max_rows = 100, std::int64_t slice_rows = 10) {
  return plan_pass(jobs, {max_rows, slice_rows});
}

TEST(SchedulerPassTest, NobodyNothing) {
  EXPECT_EQ(plan({}), Rows{});
}

TEST(SchedulerPassTest, APromptAloneGetsAllRows) {
  EXPECT_EQ(plan({prompt(30)}), Rows{30});
  EXPECT_EQ(plan({prompt(300)}), Rows{100});
}

TEST(SchedulerPassTest, WhileOthersDecodeASliceIsBounded) {
  EXPECT_EQ(plan({decoding(), prompt(300), decoding()}), (Rows{1, 10, 1}));
  EXPECT_EQ(plan({decoding(), prompt(300), decoding()}, 8), (Rows{1, 6, 1}));
  EXPECT_EQ(plan({decoding(), prompt(4)}), (Rows{1, 4}));
}

TEST(SchedulerPassTest, WhatOnePromptLeavesTheNextOneGets) {
  EXPECT_EQ(plan({prompt(30), prompt(90), prompt(5)}), (Rows{30, 70, 0}));
  EXPECT_EQ(plan({decoding(), prompt(3), prompt(90)}), (Rows{1, 3, 7}));
}

TEST(SchedulerPassTest, TheOneServedLongestAgoIsNext) {
  EXPECT_EQ(plan({prompt(300, 7), prompt(300, 5), prompt(300, 6)}), (Rows{0, 100, 0}));
  EXPECT_EQ(plan({prompt(300, 7), decoding(7), prompt(6, 5)}), (Rows{4, 1, 6}));
}

TEST(SchedulerPassTest, ABatchSmallerThanTheJobsServesThemInTurn) {
  EXPECT_EQ(plan({decoding(3), decoding(2), decoding(2), decoding(1)}, 2), (Rows{0, 1, 0, 1}));
  EXPECT_EQ(plan({decoding(2), decoding(2), prompt(50, 1)}, 2), (Rows{1, 0, 1}));
  EXPECT_EQ(plan({decoding(1), prompt(50, 2)}, 1), (Rows{1, 0}));
  EXPECT_EQ(plan({decoding(2), prompt(50, 1)}, 1), (Rows{0, 1}));
}

// Random jobs come and go: nobody waits longer than it takes to serve everybody else once, and no
// pass has more rows than it may.
TEST(SchedulerPassTest, NobodyStarves) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    test::Random random(seed);
    const PassLimits limits{random.integer(1, 40), random.integer(1, 12)};
    const auto n_places = static_cast<std::size_t>(random.integer(1, 8));
    std::vector<PassJob> jobs;
    std::vector<std::int64_t> answers;  // rows that follow the prompt
    for (std::uint64_t pass = 1; pass <= 150; ++pass) {
      while (jobs.size() < n_places && random.chance(0.7)) {
        jobs.push_back(prompt(random.integer(1, 60), pass - 1));
        answers.push_back(random.integer(1, 20));
      }
      const Rows rows = plan_pass(jobs, limits);
      const std::int64_t sum = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
      ASSERT_LE(sum, limits.max_rows);
      ASSERT_EQ(sum > 0, !jobs.empty());
      std::int64_t n_decoding = 0, prompt_rows = 0;
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        ASSERT_LE(rows[i], jobs[i].n_pending);
        ASSERT_LE(pass - jobs[i].last_pass, n_places) << "seed " << seed;
        if (jobs[i].decodes && n_places < static_cast<std::size_t>(limits.max_rows)) {
          ASSERT_EQ(rows[i], 1);
        }
        (jobs[i].decodes ? n_decoding : prompt_rows) += rows[i];
      }
      if (n_decoding > 0 && n_places <= static_cast<std::size_t>(limits.max_rows)) {
        ASSERT_LE(prompt_rows, std::max<std::int64_t>(limits.slice_rows, 1));
      }

      for (std::size_t i = jobs.size(); i-- > 0;) {
        if (rows[i] == 0) continue;
        jobs[i].last_pass = pass;
        if (!jobs[i].decodes) {
          jobs[i].n_pending -= rows[i];
          if (jobs[i].n_pending == 0) jobs[i] = decoding(pass);
        } else if (--answers[i] == 0) {
          jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(i));
          answers.erase(answers.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
    }
  }
}

}  // namespace
}  // namespace moeflux::test
