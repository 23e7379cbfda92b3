#include "experts/expert_cache.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include <gtest/gtest.h>

#include "experts/fake_backend.h"
#include "families/family.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux {
namespace {

using State = ExpertCache::State;

class Cache : public testing::Test {
 protected:
  ExpertCache cache(std::size_t n_slots) {
    return {store_, backend_, {.slots = {n_slots}, .policy = "lru"}};
  }
  static int load(ExpertCache& cache, ExpertKey key) {
    cache.use(key);
    const int slot = cache.claim(key);
    if (slot >= 0) cache.complete(slot);
    return slot;
  }
  static void touch(ExpertCache& cache, ExpertKey key) {
    const int slot = cache.find(key);
    cache.pin(slot);
    cache.use(key);
    cache.unpin(slot);
  }

  test::FakeBackend backend_;
  std::shared_ptr<const ModelSource> source_ = open_source(test::fixture_path("qwen-onekv"));
  ExpertStore store_{source_, describe_model(*source_).index.experts};  // 4 banks of 5
};

TEST_F(Cache, StartsEmpty) {
  const ExpertCache c = cache(3);
  EXPECT_EQ(c.n_slots(), 3u);
  EXPECT_EQ(c.capacity(), 3u);
  EXPECT_EQ(c.n_held(), 0u);
  EXPECT_EQ(c.find({0, 0}), -1);
}

TEST_F(Cache, SlotsAreSeparateAndAlignedForDirectReads) {
  const ExpertCache c = cache(4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(c.memory(i), c.memory(0) + store_.slot_bytes() * static_cast<std::size_t>(i));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(c.memory(i)) % ExpertStore::kBlock, 0u);
  }
}

TEST_F(Cache, ASlotGoesThroughItsStates) {
  ExpertCache c = cache(2);
  const int slot = c.claim({1, 2});
  EXPECT_EQ(c.state(slot), State::InFlight);
  EXPECT_EQ(c.find({1, 2}), slot);
  EXPECT_EQ(c.key(slot), (ExpertKey{1, 2}));
  c.complete(slot);
  EXPECT_EQ(c.state(slot), State::Ready);
  EXPECT_EQ(c.n_held(), 1u);
  EXPECT_THROW(c.complete(slot), std::logic_error);
  EXPECT_THROW(c.fail(slot), std::logic_error);
  EXPECT_THROW(c.claim({1, 2}), std::logic_error);  // it is there
}

TEST_F(Cache, AFailedReadNobodyWaitsForLeavesTheSlotEmpty) {
  ExpertCache c = cache(1);
  const int slot = c.claim({1, 2});
  c.fail(slot);
  EXPECT_EQ(c.state(slot), State::Empty);
  EXPECT_EQ(c.find({1, 2}), -1);
  EXPECT_EQ(c.n_held(), 0u);
  EXPECT_EQ(load(c, {0, 0}), slot);
}

TEST_F(Cache, AFailedReadStaysKnownUntilTheWaitingOneHasSeenIt) {
  ExpertCache c = cache(1);
  const int slot = c.claim({1, 2});
  c.pin(slot);
  c.fail(slot);
  EXPECT_EQ(c.state(slot), State::Failed);
  EXPECT_EQ(c.claim({0, 0}), -1);
  c.unpin(slot);
  EXPECT_EQ(c.state(slot), State::Empty);
  EXPECT_EQ(c.claim({0, 0}), slot);
}

TEST_F(Cache, KeysOfDifferentBanksAreDifferent) {
  ExpertCache c = cache(4);
  const int a = load(c, {0, 1}), b = load(c, {1, 0}), d = load(c, {1, 1});
  EXPECT_EQ(c.find({0, 1}), a);
  EXPECT_EQ(c.find({1, 0}), b);
  EXPECT_EQ(c.find({1, 1}), d);
  EXPECT_EQ(c.find({0, 0}), -1);
}

TEST_F(Cache, TheLeastRecentlyUsedGoes) {
  ExpertCache c = cache(2);
  load(c, {0, 1});
  load(c, {0, 2});
  touch(c, {0, 1});
  load(c, {0, 3});
  EXPECT_GE(c.find({0, 1}), 0);
  EXPECT_EQ(c.find({0, 2}), -1);
  EXPECT_GE(c.find({0, 3}), 0);
}

TEST_F(Cache, PinnedAndInFlightSlotsStay) {
  ExpertCache c = cache(2);
  const int a = load(c, {0, 1});
  const int b = load(c, {0, 2});
  c.pin(a);
  c.pin(a);
  for (int e = 0; e < 5; ++e) EXPECT_EQ(load(c, {1, e}), b);
  const int reading = c.claim({2, 0});
  EXPECT_EQ(reading, b);
  EXPECT_EQ(c.claim({2, 1}), -1);
  c.complete(reading);
  c.pin(b);
  EXPECT_EQ(c.claim({2, 1}), -1);
  EXPECT_EQ(c.find({0, 1}), a);
  c.unpin(a);
  EXPECT_EQ(c.claim({2, 1}), -1);  // pinned twice
  c.unpin(a);
  EXPECT_EQ(c.claim({2, 1}), a);
}

TEST_F(Cache, ShrinksToTheMostUsefulAndGrowsBack) {
  ExpertCache c = cache(5);
  for (int e = 0; e < 5; ++e) load(c, {0, e});
  c.set_capacity({2});
  EXPECT_EQ(c.n_held(), 2u);
  EXPECT_GE(c.find({0, 3}), 0);
  EXPECT_GE(c.find({0, 4}), 0);
  load(c, {1, 0});
  EXPECT_EQ(c.n_held(), 2u);
  c.set_capacity({100});
  EXPECT_EQ(c.capacity(), 5u);
  for (int e = 1; e < 4; ++e) load(c, {1, e});
  EXPECT_EQ(c.n_held(), 5u);
  EXPECT_GE(c.find({0, 4}), 0);
}

TEST_F(Cache, MemoryOfEmptySlotsIsReturnedWhenItShrinks) {
  ExpertCache c = cache(3);
  for (int e = 0; e < 3; ++e) std::memset(c.memory(load(c, {0, e})), 0x5A, store_.slot_bytes());
  const int kept = c.find({0, 2});
  c.set_capacity({1});
  EXPECT_EQ(c.find({0, 2}), kept);
  for (int slot = 0; slot < 3; ++slot) {  // memory the system took back is zero when touched again
    EXPECT_EQ(c.memory(slot)[0], slot == kept ? std::byte{0x5A} : std::byte{0});
  }
}

TEST_F(Cache, WhatIsPinnedWhileItShrinksGoesLater) {
  ExpertCache c = cache(3);
  const int a = load(c, {0, 0}), b = load(c, {0, 1});
  c.pin(a);
  c.pin(b);
  c.set_capacity({1});
  EXPECT_EQ(c.n_held(), 2u);
  EXPECT_EQ(c.claim({0, 2}), -1);
  c.unpin(a);
  c.unpin(b);
  EXPECT_GE(load(c, {0, 2}), 0);
  EXPECT_EQ(c.n_held(), 1u);
}

// Operations may still read a slot: it is not overwritten, nor its memory given back, before they
// are done.
TEST_F(Cache, ASlotIsOverwrittenOnlyAfterItsLastUse) {
  ExpertCache c = cache(1);
  const int slot = load(c, {0, 0});
  backend_.enqueue();
  c.used_until(slot, backend_.mark());
  EXPECT_EQ(backend_.n_waits, 0);
  EXPECT_EQ(load(c, {0, 1}), slot);
  EXPECT_EQ(backend_.n_waits, 1);
  EXPECT_EQ(load(c, {0, 2}), slot);  // not used since
  EXPECT_EQ(backend_.n_waits, 1);
  backend_.enqueue();
  c.used_until(slot, backend_.mark());
  c.set_capacity({0});
  EXPECT_EQ(backend_.n_waits, 2);
}

TEST_F(Cache, TellsWhomItEvicts) {
  ExpertCache c = cache(2);
  std::vector<ExpertKey> gone;
  c.set_on_release([&](ExpertKey key) { gone.push_back(key); });
  load(c, {0, 0});
  load(c, {0, 1});
  load(c, {1, 0});
  c.set_capacity({1});
  EXPECT_EQ(gone, (std::vector<ExpertKey>{{0, 0}, {0, 1}}));
}

TEST_F(Cache, SizesAreInBytesToo) {
  ExpertCache c = cache(4);
  EXPECT_EQ(c.bytes(), 4 * store_.slot_bytes());
  load(c, {0, 0});
  EXPECT_EQ(c.held_bytes(), store_.slot_bytes());
  c.set_capacity({3});
  EXPECT_EQ(c.capacity_bytes(), 3 * store_.slot_bytes());
  EXPECT_EQ(c.bytes(), 4 * store_.slot_bytes());
}

// Banks whose experts differ in size: each class evicts among its own.
TEST(CacheOfSeveralSizes, ClassesAreApart) {
  const auto source = open_source(test::fixture_path("mlx-qwen-mixed"));
  const ExpertStore store(source, describe_model(*source).index.experts);
  test::FakeBackend backend;
  const auto classes = store.classes();
  ASSERT_GT(classes.size(), 1u);
  ExpertCache c(store, backend, {.slots = SlotCounts(classes.size(), 2), .policy = "lru"});
  EXPECT_EQ(c.bytes(), store.floor_bytes(2));
  const auto load = [&](ExpertKey key) {
    const int slot = c.claim(key);
    c.complete(slot);
    return slot;
  };
  const int a = classes[0].banks[0], b = classes[1].banks[0];
  load({a, 0});
  load({b, 0});
  load({b, 1});
  EXPECT_TRUE(c.has_room(a));
  EXPECT_FALSE(c.has_room(b));
  load({b, 2});  // in place of {b, 0}, though {a, 0} is older
  EXPECT_GE(c.find({a, 0}), 0);
  EXPECT_EQ(c.find({b, 0}), -1);
  EXPECT_EQ(c.n_held(), 3u);
  EXPECT_EQ(c.held_bytes(), classes[0].slot_bytes + 2 * classes[1].slot_bytes);
  // Slots do not overlap, and each fills its own.
  std::vector<Bytes> places;
  for (int slot = 0; slot < static_cast<int>(c.n_slots()); ++slot) {
    places.push_back(c.bytes_of(slot));
  }
  for (std::size_t i = 1; i < places.size(); ++i) {
    EXPECT_EQ(places[i].offset, places[i - 1].offset + places[i - 1].size);
  }
  EXPECT_EQ(places.back().offset + places.back().size, c.bytes());
  EXPECT_EQ(c.bytes_of(c.find({b, 1})).size, classes[1].slot_bytes);
}

// ---- against the plainest cache one can write

class NaiveCache {
 public:
  explicit NaiveCache(std::size_t n_slots) : n_slots_(n_slots) {}

  struct Entry {
    ExpertKey key;
    int pins = 0;
  };

  Entry* find(ExpertKey key) {
    const auto it = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const Entry& e) { return e.key == key; });
    return it == entries_.end() ? nullptr : &*it;
  }
  void use(ExpertKey key) {
    const Entry entry = *find(key);
    std::erase_if(entries_, [&](const Entry& e) { return e.key == key; });
    entries_.push_back(entry);
  }
  bool add(ExpertKey key) {  // false: all pinned
    while (entries_.size() >= n_slots_) {
      const auto it = std::find_if(entries_.begin(), entries_.end(),
                                   [](const Entry& e) { return e.pins == 0; });
      if (it == entries_.end()) return false;
      entries_.erase(it);
    }
    entries_.push_back({key, 0});
    return true;
  }
  void remove(ExpertKey key) {
    std::erase_if(entries_, [&](const Entry& e) { return e.key == key; });
  }
  void resize(std::size_t n_slots) {
    n_slots_ = n_slots;
    while (entries_.size() > n_slots_) {
      const auto it = std::find_if(entries_.begin(), entries_.end(),
                                   [](const Entry& e) { return e.pins == 0; });
      if (it == entries_.end()) return;
      entries_.erase(it);
    }
  }

 private:
  std::size_t n_slots_;
  std::deque<Entry> entries_;  // least recently used first
};

TEST_F(Cache, BehavesLikeTheNaiveOne) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    test::Random random(seed);
    const auto n_slots = static_cast<std::size_t>(random.integer(1, 8));
    ExpertCache c = cache(n_slots);
    NaiveCache naive(n_slots);
    std::vector<std::pair<ExpertKey, int>> pinned;  // key and slot
    for (int step = 0; step < 1000; ++step) {
      SCOPED_TRACE(fmt::format("seed {} step {}", seed, step));
      const ExpertKey key{static_cast<int>(random.integer(0, 2)),
                          static_cast<int>(random.integer(0, 4))};
      const double what = random.uniform();
      if (what < 0.15 && !pinned.empty()) {
        const auto at = static_cast<std::size_t>(
            random.integer(0, static_cast<std::int64_t>(pinned.size()) - 1));
        c.unpin(pinned[at].second);
        if (--naive.find(pinned[at].first)->pins == 0) naive.use(pinned[at].first);
        pinned.erase(pinned.begin() + static_cast<std::ptrdiff_t>(at));
        continue;
      }
      if (what < 0.2) {
        const auto size =
            static_cast<std::size_t>(random.integer(1, static_cast<std::int64_t>(n_slots)));
        c.set_capacity({size});
        naive.resize(size);
        continue;
      }
      const int slot = c.find(key);
      NaiveCache::Entry* entry = naive.find(key);
      ASSERT_EQ(slot >= 0, entry != nullptr);
      if (entry != nullptr) {
        if (what > 0.85) {
          c.pin(slot);
          ++entry->pins;
          pinned.emplace_back(key, slot);
        }
        touch(c, key);
        naive.use(key);
        continue;
      }
      c.use(key);
      const int claimed = c.claim(key);
      ASSERT_EQ(claimed >= 0, naive.add(key));
      if (claimed < 0) continue;
      if (what > 0.75) {
        c.fail(claimed);
        naive.remove(key);
        continue;
      }
      c.complete(claimed);
    }
    for (const auto& [key, slot] : pinned) EXPECT_EQ(c.find(key), slot);
  }
}

}  // namespace
}  // namespace moeflux
