// Slots of a backend's memory that hold experts.
//
// A slot is Empty, InFlight (being read into), Ready or Failed (its read did not succeed). Pinned
// and InFlight slots are never evicted. A slot also has the mark of its last use: it is not
// overwritten, nor its memory given back, before the backend has passed that. Memory is taken as
// slots are first filled and never exceeds the slots asked for; set_capacity() returns part of it
// to the system and takes it back.
//
// Slots come in the classes of the store, each with an eviction policy over its banks. Used by one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "experts/eviction.h"
#include "experts/expert_store.h"

namespace moeflux {

class ExpertCache {
 public:
  enum class State : std::uint8_t { Empty, InFlight, Ready, Failed };

  struct Options {
    MemoryKind kind = MemoryKind::Device;
    SlotCounts slots;  // of each class of the store
    std::string_view policy = kDefaultPolicy;
  };
  // Both must outlive the cache. Throws Error(BadInput) for an unknown policy.
  ExpertCache(const ExpertStore& store, Backend& backend, const Options& options);

  std::size_t n_slots() const { return slots_.size(); }
  std::size_t capacity() const;  // slots that may be filled now
  std::size_t n_held() const;    // not Empty
  bool has_room(int bank) const;
  bool has_room() const;  // in any class
  // Whether every expert has a slot: then nothing is ever evicted.
  bool holds_all() const { return capacity() >= store_.n_experts_total(); }
  std::uint64_t bytes() const { return memory_ ? memory_->bytes() : 0; }
  std::uint64_t capacity_bytes() const;
  std::uint64_t held_bytes() const;
  // Evicts until at most these are held and returns the memory of the others. Slots that are pinned
  // or InFlight go when slots of their class are claimed next.
  void set_capacity(const SlotCounts& slots);

  // The slot that holds or is about to hold `key`, or -1.
  int find(ExpertKey key) const { return slot_of_[static_cast<std::size_t>(store_.id(key))]; }
  State state(int slot) const { return at(slot).state; }
  ExpertKey key(int slot) const { return at(slot).key; }

  // A slot for `key`, InFlight: an empty one, else in place of the expert the policy chooses. -1
  // when every slot is pinned or InFlight.
  int claim(ExpertKey key);
  void complete(int slot);  // InFlight -> Ready
  void fail(int slot);      // InFlight -> Failed, or Empty when nobody has it pinned

  // For the policy: a layer asks for its experts, and for this one, be it here or not.
  void begin_request(int bank);
  void use(ExpertKey key);
  // What is known of an expert from earlier runs; see EvictionPolicy::remember().
  void remember(ExpertKey key, double rate);

  void pin(int slot);
  void unpin(int slot);
  // Operations up to this mark may use the slot.
  void used_until(int slot, Mark mark) { at(slot).last_use = mark; }

  // Where a slot lies. The pointer is null where the host cannot reach the memory.
  const Buffer& buffer() const { return *memory_; }
  std::uint64_t offset(int slot) const;
  std::byte* memory(int slot) const {
    return memory_->host() == nullptr ? nullptr : memory_->host() + offset(slot);
  }
  Bytes bytes_of(int slot) const {
    return {memory_.get(), offset(slot), class_of(slot).slot_bytes};
  }
  ExpertView view(int slot) const { return store_.view(key(slot), *memory_, offset(slot)); }

  // Called with each expert that is evicted, or whose slot is emptied because its read failed.
  void set_on_release(std::function<void(ExpertKey)> call) { on_release_ = std::move(call); }

 private:
  struct Slot {
    ExpertKey key;
    State state = State::Empty;
    int n_pins = 0;  // InFlight counts as one. Ready and not pinned: on offer to the policy.
    Mark last_use = 0;
    int class_index = 0;
  };
  struct Class {
    std::size_t slot_bytes = 0;
    std::uint64_t offset = 0;  // of its first slot
    int first_slot = 0;
    std::size_t n_slots = 0, capacity = 0, n_held = 0;
    ExpertIds ids{{}};       // of its banks, one after the other
    std::vector<int> banks;  // of each of its layers
    std::vector<int> empty;  // a stack: what was emptied last is filled first
    std::unique_ptr<EvictionPolicy> policy;
  };
  Slot& at(int slot) { return slots_[static_cast<std::size_t>(slot)]; }
  const Slot& at(int slot) const { return slots_[static_cast<std::size_t>(slot)]; }
  Class& class_of(int slot) { return classes_[static_cast<std::size_t>(at(slot).class_index)]; }
  const Class& class_of(int slot) const {
    return classes_[static_cast<std::size_t>(at(slot).class_index)];
  }
  Class& class_of_bank(int bank) {
    return classes_[static_cast<std::size_t>(store_.class_of(bank))];
  }
  // The number of an expert for the policy of its class.
  int policy_id(ExpertKey key) {
    return class_of_bank(key.bank).ids.id(layers_[static_cast<std::size_t>(key.bank)], key.expert);
  }
  void release(int slot);
  bool evict_one(Class& from);
  void wait_for_use(int slot);
  void discard(int slot);

  const ExpertStore& store_;
  Backend& backend_;
  std::vector<Class> classes_;
  std::vector<int> layers_;         // of each bank in its class
  std::unique_ptr<Buffer> memory_;  // null without slots
  std::vector<Slot> slots_;
  std::vector<int> slot_of_;  // [experts of the store], -1: not held
  std::function<void(ExpertKey)> on_release_;
};

}  // namespace moeflux
