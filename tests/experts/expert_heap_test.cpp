#include "experts/expert_heap.h"

#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "support/random.h"

namespace moeflux::test {
namespace {

TEST(ExpertHeapTest, AgreesWithAnOrderedSet) {
  constexpr int kExperts = 60;
  ExpertHeap heap(kExperts);
  std::set<std::pair<double, int>> model;
  std::vector<double> keys(kExperts, 0);
  Random random(11);
  for (int i = 0; i < 20000; ++i) {
    const int expert = static_cast<int>(random.integer(0, kExperts - 1));
    double& key = keys[static_cast<std::size_t>(expert)];
    if (heap.contains(expert)) {
      heap.remove(expert);
      ASSERT_EQ(model.erase({key, expert}), 1);
    } else {
      key = static_cast<double>(random.integer(0, 20));
      heap.insert(expert, key);
      model.insert({key, expert});
    }
    ASSERT_EQ(heap.size(), model.size());
    if (model.empty()) continue;
    ASSERT_EQ(heap.top_key(), model.begin()->first);
    ASSERT_EQ(heap.top(), model.begin()->second);
  }
}

TEST(ExpertHeapTest, Rekeys) {
  ExpertHeap heap(50);
  for (int e = 0; e < 50; ++e) heap.insert(e, e);
  heap.rekey([](int expert) { return expert * 7 % 50; });
  for (int rank = 0; rank < 50; ++rank) {
    const int expert = heap.top();
    EXPECT_EQ(expert * 7 % 50, rank);
    heap.remove(expert);
    EXPECT_FALSE(heap.contains(expert));
  }
  EXPECT_TRUE(heap.empty());
}

}  // namespace
}  // namespace moeflux::test
