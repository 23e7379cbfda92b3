#include "io/ring_queue.h"

#include <deque>
#include <random>

#include <gtest/gtest.h>

namespace moeflux {
namespace {

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
}  // namespace moeflux
