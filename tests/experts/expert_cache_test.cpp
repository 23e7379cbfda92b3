#include "experts/expert_cache.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "support/random.h"

namespace moeflux {
namespace {

// A view that can be told apart: its row count is a number of our choice.
ExpertView view_of(int mark) {
  ExpertView view;
  view.gate.rows = mark;
  return view;
}

int load(ExpertCache& cache, ExpertKey key, int mark = 0) {
  const int slot = cache.claim();
  if (slot >= 0) cache.fill(slot, key, view_of(mark));
  return slot;
}

TEST(ExpertCache, StartsEmpty) {
  ExpertCache cache(128, 3);
  EXPECT_EQ(cache.n_slots(), 3u);
  EXPECT_EQ(cache.find({0, 0}), -1);
}

TEST(ExpertCache, SlotsAreSeparateAndAligned) {
  ExpertCache cache(192, 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(cache.memory(i), cache.memory(0) + 192 * i);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(cache.memory(i)) % 64, 0u);
  }
}

TEST(ExpertCache, KeysOfDifferentBanksAreDifferent) {
  ExpertCache cache(64, 4);
  load(cache, {0, 1}, 1);
  load(cache, {1, 0}, 2);
  load(cache, {1, 1}, 3);
  EXPECT_EQ(cache.view(cache.find({0, 1})).gate.rows, 1);
  EXPECT_EQ(cache.view(cache.find({1, 0})).gate.rows, 2);
  EXPECT_EQ(cache.view(cache.find({1, 1})).gate.rows, 3);
  EXPECT_EQ(cache.find({0, 0}), -1);
}

TEST(ExpertCache, TheLeastRecentlyUsedGoes) {
  ExpertCache cache(64, 2);
  load(cache, {0, 1});
  load(cache, {0, 2});
  EXPECT_GE(cache.find({0, 1}), 0);  // 2 is now the older one
  load(cache, {0, 3});
  EXPECT_GE(cache.find({0, 1}), 0);
  EXPECT_EQ(cache.find({0, 2}), -1);
  EXPECT_GE(cache.find({0, 3}), 0);
}

TEST(ExpertCache, PinnedSlotsStay) {
  ExpertCache cache(64, 2);
  const int a = load(cache, {0, 1});
  const int b = load(cache, {0, 2});
  cache.pin(a);
  cache.pin(a);
  for (int e = 3; e < 8; ++e) EXPECT_EQ(load(cache, {0, e}), b);
  cache.pin(b);
  EXPECT_EQ(cache.claim(), -1);
  EXPECT_EQ(cache.find({0, 1}), a);
  cache.unpin(a);
  EXPECT_EQ(cache.claim(), -1);  // pinned twice
  cache.unpin(a);
  EXPECT_EQ(cache.claim(), a);
}

TEST(ExpertCache, AClaimWithoutAFillLeavesTheSlotEmpty) {
  ExpertCache cache(64, 1);
  load(cache, {0, 1});
  EXPECT_EQ(cache.claim(), 0);
  EXPECT_EQ(cache.find({0, 1}), -1);
  EXPECT_EQ(cache.claim(), 0);
  cache.fill(0, {0, 2}, view_of(7));
  EXPECT_EQ(cache.find({0, 2}), 0);
  EXPECT_EQ(cache.view(0).gate.rows, 7);
}

// A failed read leaves an empty slot; nothing that is ready may go while there is one.
TEST(ExpertCache, EmptySlotsGoBeforeReadyOnes) {
  ExpertCache cache(64, 2);
  const int a = load(cache, {0, 1});
  const int b = load(cache, {0, 2});
  cache.pin(a);
  EXPECT_EQ(cache.claim(), b);  // the read into it fails
  cache.unpin(a);
  EXPECT_EQ(cache.claim(), b);
  EXPECT_EQ(cache.find({0, 1}), a);
}

TEST(ExpertCache, MisuseIsCaught) {
  ExpertCache cache(64, 2);
  const int slot = load(cache, {0, 1});
  EXPECT_THROW(cache.fill(slot, {0, 2}, view_of(0)), std::logic_error);  // not claimed
}

// ---- against the plainest cache one can write
// ---------------------------------------------------------

class NaiveCache {
 public:
  explicit NaiveCache(std::size_t n_slots) : n_slots_(n_slots) {}

  struct Entry {
    ExpertKey key;
    int mark = 0;
    int pins = 0;
  };

  Entry* find(ExpertKey key) {
    const auto it = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const Entry& e) { return e.key == key; });
    if (it == entries_.end()) return nullptr;
    const Entry entry = *it;
    entries_.erase(it);
    entries_.push_back(entry);
    return &entries_.back();
  }
  bool make_room() {  // false: all pinned
    if (entries_.size() < n_slots_) return true;
    const auto it =
        std::find_if(entries_.begin(), entries_.end(), [](const Entry& e) { return e.pins == 0; });
    if (it == entries_.end()) return false;
    entries_.erase(it);
    return true;
  }
  void add(ExpertKey key, int mark) { entries_.push_back({key, mark, 0}); }
  std::deque<Entry>& entries() { return entries_; }

 private:
  std::size_t n_slots_;
  std::deque<Entry> entries_;  // least recently used first
};

TEST(ExpertCache, BehavesLikeTheNaiveOne) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    test::Random random(seed);
    const auto n_slots = static_cast<std::size_t>(random.integer(1, 8));
    ExpertCache cache(64, n_slots);
    NaiveCache naive(n_slots);
    std::vector<std::pair<ExpertKey, int>> pinned;  // key and slot
    for (int step = 0; step < 1500; ++step) {
      const ExpertKey key{static_cast<int>(random.integer(0, 2)),
                          static_cast<int>(random.integer(0, 5))};
      const double what = random.uniform();
      if (what < 0.15 && !pinned.empty()) {
        const auto at = static_cast<std::size_t>(
            random.integer(0, static_cast<std::int64_t>(pinned.size()) - 1));
        cache.unpin(pinned[at].second);
        for (auto& e : naive.entries()) e.pins -= e.key == pinned[at].first;
        pinned.erase(pinned.begin() + static_cast<std::ptrdiff_t>(at));
        continue;
      }
      const int slot = cache.find(key);
      NaiveCache::Entry* entry = naive.find(key);
      ASSERT_EQ(slot >= 0, entry != nullptr) << "seed " << seed << " step " << step;
      if (entry != nullptr) {
        ASSERT_EQ(cache.view(slot).gate.rows, entry->mark);
        if (what > 0.85) {
          cache.pin(slot);
          ++entry->pins;
          pinned.emplace_back(key, slot);
        }
        continue;
      }
      const int claimed = cache.claim();
      ASSERT_EQ(claimed >= 0, naive.make_room()) << "seed " << seed << " step " << step;
      if (claimed < 0 || what > 0.7) continue;  // the read failed: the room stays empty
      cache.fill(claimed, key, view_of(step));
      naive.add(key, step);
    }
    // Pinned experts are still where they were.
    for (const auto& [key, slot] : pinned) EXPECT_EQ(cache.find(key), slot);
  }
}

}  // namespace
}  // namespace moeflux
