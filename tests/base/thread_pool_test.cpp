#include "base/thread_pool.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/error.h"

namespace moeflux {
namespace {

class ThreadPools : public testing::TestWithParam<int> {};

TEST_P(ThreadPools, EveryIndexOnceInRangesOfAtMostTheGrain) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (const std::int64_t count : {0, 1, 2, 7, 64, 1000}) {
    for (const std::int64_t grain : {1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      std::atomic<bool> ranges_fit = true, workers_fit = true;
      pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
        if (begin >= end || end - begin > grain || end > count) ranges_fit = false;
        if (worker < 0 || worker >= pool.size()) workers_fit = false;
        for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
      });
      EXPECT_TRUE(ranges_fit && workers_fit) << count << " by " << grain;
      for (const auto& times : seen) ASSERT_EQ(times, 1) << count << " by " << grain;
    }
  }
}

TEST_P(ThreadPools, AnExceptionArrivesAndThePoolGoesOn) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    try {
      pool.parallel_for(100, 1, [&](std::int64_t begin, std::int64_t, int) {
        if (begin == 37) throw std::runtime_error("at 37");
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "at 37");
    }
    std::atomic<std::int64_t> sum = 0;
    pool.parallel_for(100, 3, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) sum += i;
    });
    EXPECT_EQ(sum, 4950);
  }
}

// One worker never runs two ranges at a time: its index is safe for scratch memory.
TEST_P(ThreadPools, AWorkerIsInOneRangeAtATime) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> inside(static_cast<std::size_t>(pool.size()));
  std::atomic<bool> alone = true;
  for (int round = 0; round < 200; ++round) {
    pool.parallel_for(32, 1, [&](std::int64_t, std::int64_t, int worker) {
      auto& mine = inside[static_cast<std::size_t>(worker)];
      if (mine.fetch_add(1) != 0) alone = false;
      mine.fetch_sub(1);
    });
  }
  EXPECT_TRUE(alone);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPools, testing::Values(1, 2, 3, 5, 16),
                         testing::PrintToStringParamName());

TEST(ThreadPool, ZeroMeansTheCoresOfThisProcess) {
  EXPECT_GE(ThreadPool(0).size(), 1);
}

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // they need the address space themselves
TEST(ThreadPool, RefusesMoreThreadsThanTheSystemStarts) {
  const auto ask_for_too_many = [] {
    const rlimit little{1ul << 30, 1ul << 30};
    ::setrlimit(RLIMIT_AS, &little);
    try {
      ThreadPool pool(100000);
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(error.code() == Errc::LimitExceeded ? 7 : 1);
    }
    std::_Exit(2);
  };
  EXPECT_EXIT(ask_for_too_many(), testing::ExitedWithCode(7), "of 100000 threads");
}
#endif

TEST(ThreadPool, ComesAndGoesWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

TEST(ThreadPool, TheCallerLooksUpBetweenItsParts) {
  for (const int n_threads : {1, 2, 4}) {
    ThreadPool pool(n_threads);
    const auto caller = std::this_thread::get_id();
    int n_calls = 0;
    std::atomic<int> by_caller{0};
    pool.set_poll([&] {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      ++n_calls;
    });
    pool.parallel_for(64, 1,
                      [&](std::int64_t, std::int64_t, int worker) { by_caller += worker == 0; });
    EXPECT_EQ(n_calls, by_caller.load());
    EXPECT_TRUE(n_threads > 1 || n_calls == 64);
  }
}

TEST(ThreadPool, WhatGoesWrongInBetweenIsTheCallersError) {
  ThreadPool pool(2);
  pool.set_poll([] { fail(Errc::Io, "between"); });
  std::atomic<bool> met{false};  // the caller has a part of its own
  const auto loop = [&] {
    pool.parallel_for(2, 1, [&](std::int64_t, std::int64_t, int worker) {
      if (worker == 0) met = true;
      while (!met) std::this_thread::yield();
    });
  };
  EXPECT_THROW(loop(), Error);
  pool.set_poll({});
  EXPECT_NO_THROW(loop());
}

}  // namespace
}  // namespace moeflux
