// Experts on offer, least key first: a binary heap that knows where each expert is, so that any of
// them can be taken out in O(log n). Memory is reserved once, for all experts. Equal keys are
// ordered by expert, so the order does not depend on how it came about.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "experts/expert_ids.h"

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

// The experts on offer, a heap for each layer, for policies whose idea of worth moves with the
// layers.
//
// Layers are asked in turn, so an expert of the layer just passed cannot be of use again for almost
// a whole token, and one of the layer to come may be in a moment. A policy keeps keys that do not
// change between two requests of a layer, and says when it evicts what a layer adds to them all.
class LayerOffers {
 public:
  explicit LayerOffers(const ExpertIds& experts)
      : experts_(experts), least_(static_cast<std::size_t>(experts.n_layers()), kNone) {
    heaps_.reserve(least_.size());
    for (const int n : experts.n_experts()) heaps_.emplace_back(n);
  }

  void insert(int id, double key) {
    const int layer = experts_.layer(id);
    heap(layer).insert(experts_.expert(id), key);
    note(layer);
  }
  void remove(int id) {
    const int layer = experts_.layer(id);
    heap(layer).remove(experts_.expert(id));
    note(layer);
  }
  template <class KeyOf>  // key_of(expert of the layer)
  void rekey(int layer, KeyOf key_of) {
    heap(layer).rekey(key_of);
    note(layer);
  }

  // Takes out the expert of the least key + of_layer(layer); -1 when there is none.
  template <class OfLayer>
  int take_least(OfLayer of_layer) {
    int best = -1;
    double least = kNone;
    for (std::size_t layer = 0; layer < least_.size(); ++layer) {
      if (least_[layer] == kNone) continue;
      const double key = least_[layer] + of_layer(static_cast<int>(layer));
      if (best < 0 || key < least) {
        best = static_cast<int>(layer);
        least = key;
      }
    }
    if (best < 0) return -1;
    const int id = experts_.id(best, heap(best).top());
    remove(id);
    return id;
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  ExpertHeap& heap(int layer) { return heaps_[static_cast<std::size_t>(layer)]; }
  void note(int layer) {
    least_[static_cast<std::size_t>(layer)] = heap(layer).empty() ? kNone : heap(layer).top_key();
  }

  ExpertIds experts_;
  std::vector<ExpertHeap> heaps_;
  std::vector<double> least_;  // [n_layers]: the least key of each, side by side for take_least()
};

// How far ahead a layer is: 0 for the one asked now, just under 1 for the one before it.
inline double layer_distance(int layer, int current, int n_layers) {
  const int ahead = layer - current;
  return static_cast<double>(ahead < 0 ? ahead + n_layers : ahead) / n_layers;
}

}  // namespace moeflux
