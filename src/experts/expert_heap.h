// Experts on offer, least key first: a binary heap that knows where each expert is, so that any of
// them can be taken out in O(log n). Memory is reserved once, for all experts. Equal keys are
// ordered by expert, so the order does not depend on how it came about.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moeflux {

class ExpertHeap {
 public:
  explicit ExpertHeap(int n_experts) : place_(static_cast<std::size_t>(n_experts), kNowhere) {
    heap_.reserve(static_cast<std::size_t>(n_experts));
  }

  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  bool contains(int expert) const { return place_[static_cast<std::size_t>(expert)] != kNowhere; }
  int top() const { return heap_.front().expert; }
  double top_key() const { return heap_.front().key; }

  void insert(int expert, double key) {
    heap_.push_back({key, expert});
    rise(heap_.size() - 1);
  }
  void remove(int expert) {
    const std::size_t at = place_[static_cast<std::size_t>(expert)];
    place_[static_cast<std::size_t>(expert)] = kNowhere;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (at == heap_.size()) return;
    heap_[at] = last;
    if (at > 0 && last < heap_[(at - 1) / 2]) {
      rise(at);
    } else {
      sink(at);
    }
  }

  // Gives every expert on offer the key that `key_of(expert)` says now; O(n).
  template <class KeyOf>
  void rekey(KeyOf key_of) {
    for (Entry& entry : heap_) entry.key = key_of(entry.expert);
    for (std::size_t at = heap_.size() / 2; at-- > 0;) sink(at);
  }

 private:
  struct Entry {
    double key;
    int expert;
    friend bool operator<(const Entry& a, const Entry& b) {
      return a.key != b.key ? a.key < b.key : a.expert < b.expert;
    }
  };
  static constexpr std::size_t kNowhere = SIZE_MAX;

  void put(std::size_t at, const Entry& entry) {
    heap_[at] = entry;
    place_[static_cast<std::size_t>(entry.expert)] = at;
  }
  void rise(std::size_t at) {
    const Entry entry = heap_[at];
    for (; at > 0 && entry < heap_[(at - 1) / 2]; at = (at - 1) / 2) put(at, heap_[(at - 1) / 2]);
    put(at, entry);
  }
  void sink(std::size_t at) {
    const Entry entry = heap_[at];
    while (2 * at + 1 < heap_.size()) {
      std::size_t child = 2 * at + 1;
      if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
      if (!(heap_[child] < entry)) break;
      put(at, heap_[child]);
      at = child;
    }
    put(at, entry);
  }

  std::vector<Entry> heap_;
  std::vector<std::size_t> place_;  // [n_experts]: index into heap_
};

}  // namespace moeflux
