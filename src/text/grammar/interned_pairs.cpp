#include "text/grammar/interned_pairs.h"

#include <algorithm>
#include <limits>

namespace moeflux {
namespace {

constexpr InternedPairs::Id kFree = std::numeric_limits<InternedPairs::Id>::max();
constexpr std::size_t kLinearSearch = 16;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

std::uint64_t joined(NumberPair pair) {
  return (static_cast<std::uint64_t>(pair.first) << 32) | pair.second;
}

}  // namespace

InternedPairs::Id InternedPairs::intern(std::span<const NumberPair> pairs, std::uint32_t tag) {
  std::uint64_t hash = mix(tag, pairs.size());
  for (const NumberPair pair : pairs) hash = mix(hash, joined(pair));
  if (entries_.size() * 2 >= slots_.size()) grow();
  std::size_t slot = hash & (slots_.size() - 1);
  for (; slots_[slot] != kFree; slot = (slot + 1) & (slots_.size() - 1)) {
    const Entry& entry = entries_[slots_[slot]];
    if (entry.hash != hash || entry.tag != tag || entry.size != pairs.size()) continue;
    if (std::equal(pairs.begin(), pairs.end(),
                   pool_.begin() + static_cast<std::ptrdiff_t>(entry.begin))) {
      return slots_[slot];
    }
  }
  const Id id = static_cast<Id>(entries_.size());
  entries_.push_back({pool_.size(), static_cast<std::uint32_t>(pairs.size()), tag, hash});
  pool_.insert(pool_.end(), pairs.begin(), pairs.end());
  slots_[slot] = id;
  return id;
}

void InternedPairs::grow() {
  slots_.assign(std::max<std::size_t>(64, slots_.size() * 2), kFree);
  for (Id id = 0; id < entries_.size(); ++id) {
    std::size_t slot = entries_[id].hash & (slots_.size() - 1);
    while (slots_[slot] != kFree) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = id;
  }
}

std::size_t InternedPairs::bytes() const {
  return pool_.capacity() * sizeof(NumberPair) + entries_.capacity() * sizeof(Entry) +
         slots_.capacity() * sizeof(Id);
}

void InternedPairs::clear() {
  *this = InternedPairs();  // an empty list assigned to a vector would leave it its memory
}

bool PairSet::add(NumberPair pair) {
  if (items_.size() < kLinearSearch) {
    if (std::find(items_.begin(), items_.end(), pair) != items_.end()) return false;
    items_.push_back(pair);
    return true;
  }
  if (items_.size() * 2 >= slots_.size() || items_.size() == kLinearSearch) grow();
  std::size_t slot = mix(0, joined(pair)) & (slots_.size() - 1);
  for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
    if (items_[slots_[slot] - 1] == pair) return false;
  }
  items_.push_back(pair);
  slots_[slot] = static_cast<std::uint32_t>(items_.size());
  return true;
}

void PairSet::grow() {
  std::size_t size = 64;
  while (size < items_.size() * 4) size *= 2;
  slots_.assign(size, 0);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    std::size_t slot = mix(0, joined(items_[i])) & (size - 1);
    while (slots_[slot] != 0) slot = (slot + 1) & (size - 1);
    slots_[slot] = static_cast<std::uint32_t>(i + 1);
  }
}

void PairSet::clear() {
  items_.clear();
  if (slots_.size() > 64) slots_.clear();
}

}  // namespace moeflux
