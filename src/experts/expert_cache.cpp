#include "experts/expert_cache.h"

#include <algorithm>

#include <sys/mman.h>

#include "base/error.h"

namespace moeflux {

ExpertCache::ExpertCache(const ExpertStore& store, std::size_t n_slots,
                         std::unique_ptr<EvictionPolicy> policy)
    : store_(store),
      slot_bytes_(store.slot_bytes()),
      memory_(slot_bytes_ * n_slots),
      policy_(std::move(policy)),
      slots_(n_slots),
      slot_of_(store.n_experts_total(), -1),
      capacity_(n_slots) {
  for (std::size_t i = n_slots; i > 0; --i) empty_.push_back(static_cast<int>(i - 1));
}

int ExpertCache::claim(ExpertKey key) {
  MOEFLUX_ASSERT(find(key) < 0);
  while (n_held_ >= capacity_) {
    const bool shrinking = n_held_ > capacity_;
    if (!give_up_one()) return -1;
    if (shrinking) ::madvise(memory(empty_.back()), slot_bytes_, MADV_DONTNEED);
  }
  const int slot = empty_.back();
  empty_.pop_back();
  at(slot) = {key, State::InFlight, 1};
  slot_of_[static_cast<std::size_t>(store_.id(key))] = slot;
  ++n_held_;
  return slot;
}

void ExpertCache::complete(int slot) {
  MOEFLUX_ASSERT(state(slot) == State::InFlight);
  at(slot).state = State::Ready;
  unpin(slot);
}

void ExpertCache::fail(int slot) {
  MOEFLUX_ASSERT(state(slot) == State::InFlight);
  at(slot).state = State::Failed;
  unpin(slot);
}

void ExpertCache::pin(int slot) {
  if (at(slot).n_pins++ == 0) policy_->withdraw(store_.id(key(slot)));
}

void ExpertCache::unpin(int slot) {
  MOEFLUX_ASSERT(at(slot).n_pins > 0);
  if (--at(slot).n_pins > 0) return;
  if (state(slot) == State::Ready) policy_->offer(store_.id(key(slot)));
  if (state(slot) == State::Failed) release(slot);
}

void ExpertCache::release(int slot) {
  slot_of_[static_cast<std::size_t>(store_.id(key(slot)))] = -1;
  at(slot).state = State::Empty;
  empty_.push_back(slot);
  --n_held_;
}

bool ExpertCache::give_up_one() {
  const int expert = policy_->evict();
  if (expert < 0) return false;
  release(slot_of_[static_cast<std::size_t>(expert)]);
  return true;
}

void ExpertCache::set_capacity(std::size_t n_slots) {
  capacity_ = std::min(n_slots, slots_.size());
  policy_->set_slots(capacity_);
  while (n_held_ > capacity_ && give_up_one()) {
  }
  if (capacity_ == slots_.size()) return;
  for (const int slot : empty_) ::madvise(memory(slot), slot_bytes_, MADV_DONTNEED);
}

}  // namespace moeflux
