#include "experts/expert_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace moeflux {
namespace {

// Where every expert has a slot nothing is ever evicted: the cheapest policy does.
std::unique_ptr<EvictionPolicy> policy_for(std::string_view name, const ExpertIds& ids,
                                           std::size_t n_slots) {
  auto policy = make_policy(name, ids, n_slots);  // an unknown name is always an error
  return n_slots < static_cast<std::size_t>(ids.n_total()) ? std::move(policy)
                                                           : make_policy("lru", ids, n_slots);
}

}  // namespace

ExpertCache::ExpertCache(const ExpertStore& store, Backend& backend, const Options& options)
    : store_(store),
      backend_(backend),
      layers_(static_cast<std::size_t>(store.n_banks())),
      slot_of_(store.n_experts_total(), -1) {
  MOEFLUX_ASSERT(options.slots.size() == store.classes().size());
  std::uint64_t bytes = 0;
  for (const SlotClass& each : store.classes()) {
    Class& made = classes_.emplace_back();
    const auto index = static_cast<int>(classes_.size()) - 1;
    made.slot_bytes = each.slot_bytes;
    made.offset = bytes;
    made.first_slot = static_cast<int>(slots_.size());
    made.n_slots = made.capacity = options.slots[static_cast<std::size_t>(index)];
    made.banks = each.banks;
    std::vector<int> n_experts;
    for (const int bank : each.banks) {
      layers_[static_cast<std::size_t>(bank)] = static_cast<int>(n_experts.size());
      n_experts.push_back(store.n_experts(bank));
    }
    made.ids = ExpertIds(std::move(n_experts));
    made.policy = policy_for(options.policy, made.ids, made.n_slots);
    for (std::size_t i = made.n_slots; i > 0; --i) {
      made.empty.push_back(made.first_slot + static_cast<int>(i - 1));
    }
    Slot slot;
    slot.class_index = index;
    slots_.resize(slots_.size() + made.n_slots, slot);
    bytes += made.n_slots * made.slot_bytes;
  }
  if (bytes > 0) memory_ = backend.allocate(bytes, options.kind, Backing::Huge);
}

std::size_t ExpertCache::capacity() const {
  std::size_t n = 0;
  for (const Class& each : classes_) n += each.capacity;
  return n;
}

std::size_t ExpertCache::n_held() const {
  std::size_t n = 0;
  for (const Class& each : classes_) n += each.n_held;
  return n;
}

std::uint64_t ExpertCache::capacity_bytes() const {
  std::uint64_t bytes = 0;
  for (const Class& each : classes_) bytes += each.capacity * each.slot_bytes;
  return bytes;
}

std::uint64_t ExpertCache::held_bytes() const {
  std::uint64_t bytes = 0;
  for (const Class& each : classes_) bytes += each.n_held * each.slot_bytes;
  return bytes;
}

bool ExpertCache::has_room(int bank) const {
  const Class& of = classes_[static_cast<std::size_t>(store_.class_of(bank))];
  return of.n_held < of.capacity;
}

bool ExpertCache::has_room() const {
  return std::any_of(classes_.begin(), classes_.end(),
                     [](const Class& each) { return each.n_held < each.capacity; });
}

std::uint64_t ExpertCache::offset(int slot) const {
  const Class& of = class_of(slot);
  return of.offset + static_cast<std::uint64_t>(slot - of.first_slot) * of.slot_bytes;
}

int ExpertCache::claim(ExpertKey key) {
  MOEFLUX_ASSERT(find(key) < 0);
  Class& from = class_of_bank(key.bank);
  while (from.n_held >= from.capacity) {
    const bool shrinking = from.n_held > from.capacity;
    if (!evict_one(from)) return -1;
    if (shrinking) discard(from.empty.back());
  }
  const int slot = from.empty.back();
  from.empty.pop_back();
  at(slot).key = key;
  at(slot).state = State::InFlight;
  at(slot).n_pins = 1;
  slot_of_[static_cast<std::size_t>(store_.id(key))] = slot;
  ++from.n_held;
  wait_for_use(slot);
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

void ExpertCache::begin_request(int bank) {
  class_of_bank(bank).policy->begin_request(layers_[static_cast<std::size_t>(bank)]);
}

void ExpertCache::use(ExpertKey key) {
  class_of_bank(key.bank).policy->use(policy_id(key));
}

void ExpertCache::remember(ExpertKey key, double rate) {
  class_of_bank(key.bank).policy->remember(policy_id(key), rate);
}

void ExpertCache::pin(int slot) {
  if (at(slot).n_pins++ == 0) class_of(slot).policy->withdraw(policy_id(key(slot)));
}

void ExpertCache::unpin(int slot) {
  MOEFLUX_ASSERT(at(slot).n_pins > 0);
  if (--at(slot).n_pins > 0) return;
  if (state(slot) == State::Ready) class_of(slot).policy->offer(policy_id(key(slot)));
  if (state(slot) == State::Failed) release(slot);
}

void ExpertCache::release(int slot) {
  slot_of_[static_cast<std::size_t>(store_.id(key(slot)))] = -1;
  at(slot).state = State::Empty;
  class_of(slot).empty.push_back(slot);
  --class_of(slot).n_held;
  if (on_release_) on_release_(key(slot));
}

bool ExpertCache::evict_one(Class& from) {
  const int id = from.policy->evict();
  if (id < 0) return false;
  const int bank = from.banks[static_cast<std::size_t>(from.ids.layer(id))];
  release(find({bank, from.ids.expert(id)}));
  return true;
}

void ExpertCache::wait_for_use(int slot) {
  if (const Mark mark = std::exchange(at(slot).last_use, 0)) backend_.wait(mark);
}

void ExpertCache::discard(int slot) {
  wait_for_use(slot);
  backend_.discard(bytes_of(slot));
}

void ExpertCache::set_capacity(const SlotCounts& slots) {
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    Class& each = classes_[c];
    each.capacity = std::min(slots[c], each.n_slots);
    each.policy->set_slots(each.capacity);
    while (each.n_held > each.capacity && evict_one(each)) {
    }
    if (each.capacity == each.n_slots) continue;
    for (const int slot : each.empty) discard(slot);
  }
}

}  // namespace moeflux
