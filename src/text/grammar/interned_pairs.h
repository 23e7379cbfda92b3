// Sets of pairs of numbers, each stored once and named by a small id: equal sets have equal ids.
// The stacks and the states of a running grammar are such sets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moeflux {

struct NumberPair {
  std::uint32_t first, second;
  auto operator<=>(const NumberPair&) const = default;
};

class InternedPairs {
 public:
  using Id = std::uint32_t;

  // `pairs` are sorted and unique. `tag` is part of the identity.
  Id intern(std::span<const NumberPair> pairs, std::uint32_t tag);

  std::span<const NumberPair> pairs(Id id) const {
    return std::span(pool_).subspan(entries_[id].begin, entries_[id].size);
  }
  std::uint32_t tag(Id id) const { return entries_[id].tag; }
  std::size_t size() const { return entries_.size(); }
  std::size_t bytes() const;
  void clear();

 private:
  struct Entry {
    std::size_t begin;
    std::uint32_t size, tag;
    std::uint64_t hash;
  };
  void grow();

  std::vector<NumberPair> pool_;
  std::vector<Entry> entries_;
  std::vector<Id> slots_;  // open addressing; kFree
};

// A set being built: each pair once, in order of arrival.
class PairSet {
 public:
  bool add(NumberPair pair);  // false when it is there already
  void clear();
  std::size_t size() const { return items_.size(); }
  NumberPair operator[](std::size_t i) const { return items_[i]; }

 private:
  void grow();
  std::vector<NumberPair> items_;
  std::vector<std::uint32_t> slots_;  // item + 1; used once there are many items
};

}  // namespace moeflux
