#include "text/jinja/heap.h"

#include <gtest/gtest.h>

namespace moeflux::jinja {
namespace {

class Node : public Object {
 public:
  Node(Heap& heap, int& alive) : Object(heap), alive_(alive) { ++alive_; }
  ~Node() override { --alive_; }
  void drop_children() noexcept override { next = {}; }

  Ref<Node> next;

 private:
  int& alive_;
};

TEST(Heap, DestroysWhatIsNoLongerReferenced) {
  int alive = 0;
  Heap heap;
  {
    const Ref<Node> first = heap.make<Node>(alive);
    const Ref<Node> same = first;
    first->next = heap.make<Node>(alive);
    EXPECT_EQ(alive, 2);
    first->next = {};
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Heap, DestroysLongChainsWithoutRecursion) {
  int alive = 0;
  Heap heap;
  Ref<Node> head;
  for (int i = 0; i < 1'000'000; ++i) {
    Ref<Node> node = heap.make<Node>(alive);
    node->next = std::move(head);
    head = std::move(node);
  }
  EXPECT_EQ(alive, 1'000'000);
  head = {};
  EXPECT_EQ(alive, 0);
}

TEST(Heap, DestroysCyclesAtItsEnd) {
  int alive = 0;
  {
    Heap heap;
    const Ref<Node> a = heap.make<Node>(alive);
    a->next = heap.make<Node>(alive);
    a->next->next = a;
    heap.make<Node>(alive)->next = a;
    EXPECT_EQ(alive, 2);
  }
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace moeflux::jinja
