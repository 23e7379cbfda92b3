#include "experts/expert_cache.h"

#include "base/error.h"

namespace moeflux {

ExpertCache::ExpertCache(std::size_t slot_bytes, std::size_t n_slots)
    : slot_bytes_(slot_bytes), memory_(slot_bytes * n_slots), slots_(n_slots) {
  for (std::size_t i = 0; i < n_slots; ++i) {
    by_age_.push_back(static_cast<int>(i));
    slots_[i].age = std::prev(by_age_.end());
  }
}

int ExpertCache::find(ExpertKey key) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return -1;
  by_age_.splice(by_age_.end(), by_age_, slots_[static_cast<std::size_t>(it->second)].age);
  return it->second;
}

int ExpertCache::claim() {
  for (const int index : by_age_) {
    Slot& slot = slots_[static_cast<std::size_t>(index)];
    if (slot.n_pins > 0) continue;
    if (slot.ready) by_key_.erase(slot.key);
    slot.ready = false;
    by_age_.splice(by_age_.begin(), by_age_, slot.age);  // first to be claimed again, should its read fail
    return index;
  }
  return -1;
}

void ExpertCache::fill(int index, ExpertKey key, const ExpertView& view) {
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  MOEFLUX_ASSERT(!slot.ready && slot.n_pins == 0);
  slot.key = key;
  slot.view = view;
  slot.ready = true;
  by_key_[key] = index;
  by_age_.splice(by_age_.end(), by_age_, slot.age);
}

}  // namespace moeflux
