#include "io/op_tracker.h"

#include <array>
#include <cerrno>
#include <deque>
#include <random>

#include <gtest/gtest.h>

#include "io/reader_suite.h"

namespace moeflux::test {
namespace {

class OpTrackerTest : public testing::Test {
 protected:
  void add(std::size_t bytes, std::uint64_t tag, int file = 0) {
    tracker_.add({file, 0, {memory_.data(), bytes}, tag}, files_, {4096, 4096}, waiting_);
  }

  TempDir dir_;
  FileSet files_{{dir_.write("file", "content")}, false};
  AlignedBuffer memory_{1 << 16};
  OpTracker tracker_;
  RingQueue<Piece> waiting_;
  ReaderStats stats_;
  std::array<ReadResult, 4> results_;
};

TEST_F(OpTrackerTest, AnOpEndsWithItsLastPiece) {
  add(10000, 77);
  ASSERT_EQ(waiting_.size(), 3u);
  EXPECT_EQ(tracker_.in_flight(), 1u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(tracker_.has_results());
    tracker_.finish_piece(waiting_.pop().op, 0);
  }
  ASSERT_EQ(tracker_.take_results(results_, stats_), 1u);
  EXPECT_EQ(results_[0].tag, 77u);
  EXPECT_EQ(results_[0].bytes, 10000u);
  EXPECT_EQ(tracker_.in_flight(), 0u);
  EXPECT_EQ(stats_.bytes, 10000u);
}

TEST_F(OpTrackerTest, TheFirstErrorIsKept) {
  add(10000, 1);
  const std::uint32_t op = waiting_.front().op;
  tracker_.finish_piece(op, 0);
  EXPECT_FALSE(tracker_.has_failed(op));
  tracker_.finish_piece(op, EIO);
  EXPECT_TRUE(tracker_.has_failed(op));
  tracker_.finish_piece(op, EBADF);
  ASSERT_EQ(tracker_.take_results(results_, stats_), 1u);
  EXPECT_EQ(results_[0].error, EIO);
  EXPECT_EQ(results_[0].bytes, 0u);
}

TEST_F(OpTrackerTest, NumbersAreUsedAgainWithoutMixingOpsUp) {
  for (std::uint64_t round = 0; round < 100; ++round) {
    add(4096, 2 * round);
    add(4096, 2 * round + 1);
    const std::uint32_t first = waiting_.pop().op;
    const std::uint32_t second = waiting_.pop().op;
    EXPECT_LT(first, 2u);
    EXPECT_LT(second, 2u);
    tracker_.finish_piece(second, 0);
    tracker_.finish_piece(first, EIO);
    ASSERT_EQ(tracker_.take_results(results_, stats_), 2u);
    EXPECT_EQ(results_[0].tag, 2 * round + 1);
    EXPECT_EQ(results_[0].error, 0);
    EXPECT_EQ(results_[1].tag, 2 * round);
    EXPECT_EQ(results_[1].error, EIO);
  }
}

TEST_F(OpTrackerTest, CancelFailsWhatWaits) {
  add(10000, 1);
  add(100, 2);
  const Piece started = waiting_.pop();
  tracker_.cancel(waiting_);
  EXPECT_TRUE(waiting_.empty());
  ASSERT_EQ(tracker_.take_results(results_, stats_), 1u)
      << "the started op must wait for its piece";
  EXPECT_EQ(results_[0].tag, 2u);
  EXPECT_EQ(results_[0].error, ECANCELED);
  tracker_.finish_piece(started.op, 0);
  ASSERT_EQ(tracker_.take_results(results_, stats_), 1u);
  EXPECT_EQ(results_[0].error, ECANCELED);
}

TEST_F(OpTrackerTest, WhatCannotBeReadEndsAtOnce) {
  add(0, 1);
  add(10, 2, 5);
  EXPECT_TRUE(waiting_.empty());
  ASSERT_EQ(tracker_.take_results(std::span(results_).first(1), stats_), 1u);
  EXPECT_EQ(results_[0].error, 0);
  ASSERT_EQ(tracker_.take_results(results_, stats_), 1u);
  EXPECT_EQ(results_[0].error, EBADF);
  EXPECT_EQ(stats_.failed_ops, 1u);
}

TEST(RingQueue, BehavesLikeADeque) {
  RingQueue<int> queue;
  std::deque<int> model;
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    // Longer and shorter in turn, so that it wraps, grows and runs empty.
    if (random() % 100 < (i / 1000 % 2 == 0 ? 60u : 40u)) {
      queue.push(i);
      model.push_back(i);
    } else if (!model.empty()) {
      EXPECT_EQ(queue.front(), model.front());
      EXPECT_EQ(queue.pop(), model.front());
      model.pop_front();
    }
    ASSERT_EQ(queue.size(), model.size());
    ASSERT_EQ(queue.empty(), model.empty());
  }
}

}  // namespace
}  // namespace moeflux::test
