// Slots of memory that hold experts, least recently used first to go.
//
// Invariants: a slot is Empty or Ready; a pinned slot is never evicted; the memory is reserved up front and never
// exceeds its reservation. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "base/aligned_buffer.h"
#include "experts/expert_store.h"

namespace moeflux {

class ExpertCache {
 public:
  ExpertCache(std::size_t slot_bytes, std::size_t n_slots);

  std::size_t n_slots() const { return slots_.size(); }

  // The slot that holds `key`, or -1. A hit becomes the most recently used.
  int find(ExpertKey key);
  // A slot for `key`: an empty one, else the least recently used unpinned one. -1 when all are pinned.
  // The slot stays Empty until fill().
  int claim();
  void fill(int slot, ExpertKey key, const ExpertView& view);

  void pin(int slot) { ++slots_[static_cast<std::size_t>(slot)].n_pins; }
  void unpin(int slot) { --slots_[static_cast<std::size_t>(slot)].n_pins; }

  std::byte* memory(int slot) const { return memory_.data() + static_cast<std::size_t>(slot) * slot_bytes_; }
  const ExpertView& view(int slot) const { return slots_[static_cast<std::size_t>(slot)].view; }

 private:
  struct KeyHash {
    std::size_t operator()(ExpertKey key) const {
      return std::hash<std::uint64_t>()((static_cast<std::uint64_t>(key.bank) << 32) |
                                        static_cast<std::uint32_t>(key.expert));
    }
  };
  struct Slot {
    ExpertKey key;
    ExpertView view;
    int n_pins = 0;
    bool ready = false;
    std::list<int>::iterator age;
  };

  std::size_t slot_bytes_;
  AlignedBuffer memory_;
  std::vector<Slot> slots_;
  std::list<int> by_age_;  // least recently used first; empty slots at the front
  std::unordered_map<ExpertKey, int, KeyHash> by_key_;
};

}  // namespace moeflux
