// The experts on offer, a heap for each layer, for policies whose idea of worth moves with the
// layers.
//
// Layers are asked in turn, so an expert of the layer just passed cannot be of use again for almost
// a whole token, and one of the layer to come may be in a moment. A policy keeps keys that do not
// change between two requests of a layer, and says when it evicts what a layer adds to them all.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "experts/expert_heap.h"
#include "experts/expert_ids.h"

namespace moeflux {

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
