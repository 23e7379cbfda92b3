#include "engine/scheduler/scheduler_pass.h"

#include <numeric>

#include <gtest/gtest.h>

#include "support/random.h"

namespace moeflux {
namespace {

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
}  // namespace moeflux
