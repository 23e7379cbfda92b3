// Slots of memory that hold experts.
//
// A slot is Empty, InFlight (being read into), Ready or Failed (its read did not succeed). Pinned
// and InFlight slots are never given up. Memory is taken as slots are first filled and never
// exceeds the slots asked for; set_capacity() returns part of it to the system and takes it back.
// Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "experts/eviction.h"
#include "experts/expert_store.h"
#include "base/aligned_buffer.h"

namespace moeflux {

class ExpertCache {
 public:
  enum class State : std::uint8_t { Empty, InFlight, Ready, Failed };

  ExpertCache(const ExpertStore& store, std::size_t n_slots,
              std::unique_ptr<EvictionPolicy> policy);

  std::size_t n_slots() const { return slots_.size(); }
  std::size_t capacity() const { return capacity_; }  // slots that may be filled now
  std::size_t n_held() const { return n_held_; }      // not Empty
  bool has_room() const { return n_held_ < capacity_; }
  // Gives up experts until at most `n_slots` are held and returns their memory. Slots that are
  // pinned or InFlight go when they are claimed next.
  void set_capacity(std::size_t n_slots);

  // The slot that holds or is about to hold `key`, or -1.
  int find(ExpertKey key) const { return slot_of_[static_cast<std::size_t>(store_.id(key))]; }
  State state(int slot) const { return at(slot).state; }
  ExpertKey key(int slot) const { return at(slot).key; }

  // A slot for `key`, InFlight: an empty one, else in place of the expert the policy gives up.
  // -1 when every slot is pinned or InFlight.
  int claim(ExpertKey key);
  void complete(int slot);  // InFlight -> Ready
  void fail(int slot);      // InFlight -> Failed, or Empty when nobody has it pinned

  // For the policy: a layer asks for its experts, and for this one, be it here or not.
  void begin_request(int bank) { policy_->begin_request(bank); }
  void use(ExpertKey key) { policy_->use(store_.id(key)); }

  EvictionPolicy& policy() { return *policy_; }

  void pin(int slot);
  void unpin(int slot);

  std::byte* memory(int slot) const {
    return memory_.data() + static_cast<std::size_t>(slot) * slot_bytes_;
  }
  std::span<std::byte> arena() const { return memory_.bytes(); }

 private:
  struct Slot {
    ExpertKey key;
    State state = State::Empty;
    int n_pins = 0;  // InFlight counts as one. Ready and not pinned: on offer to the policy.
  };
  Slot& at(int slot) { return slots_[static_cast<std::size_t>(slot)]; }
  const Slot& at(int slot) const { return slots_[static_cast<std::size_t>(slot)]; }
  void release(int slot);
  bool give_up_one();

  const ExpertStore& store_;
  std::size_t slot_bytes_;
  HugeBuffer memory_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::vector<Slot> slots_;
  std::vector<int> empty_;    // a stack: what was emptied last is filled first
  std::vector<int> slot_of_;  // [experts of the store], -1: not held
  std::size_t n_held_ = 0;
  std::size_t capacity_;
};

}  // namespace moeflux
