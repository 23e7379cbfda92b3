// How routed experts are named: by bank and place in it, or numbered through the whole model, where
// expert e of layer l is number first(l) + e. Policies, traces and profiles keep what they know
// about experts in plain arrays over these numbers. A layer here is a layer that has routed
// experts: the bank of ExpertKey.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace moeflux {

struct ExpertKey {
  int bank = 0;
  int expert = 0;
  friend bool operator==(const ExpertKey&, const ExpertKey&) = default;
};

class ExpertIds {
 public:
  explicit ExpertIds(std::vector<int> n_experts) : n_experts_(std::move(n_experts)) {
    first_.reserve(n_experts_.size());
    for (std::size_t layer = 0; layer < n_experts_.size(); ++layer) {
      first_.push_back(n_total_);
      n_total_ += n_experts_[layer];
      layer_of_.insert(layer_of_.end(), static_cast<std::size_t>(n_experts_[layer]),
                       static_cast<std::int32_t>(layer));
    }
  }

  int n_layers() const { return static_cast<int>(n_experts_.size()); }
  int n_total() const { return n_total_; }
  int n_experts(int layer) const { return n_experts_[static_cast<std::size_t>(layer)]; }
  const std::vector<int>& n_experts() const { return n_experts_; }

  int id(ExpertKey key) const { return id(key.bank, key.expert); }
  ExpertKey key(int id) const { return {layer(id), expert(id)}; }
  int id(int layer, int expert) const { return first_[static_cast<std::size_t>(layer)] + expert; }
  int layer(int id) const { return layer_of_[static_cast<std::size_t>(id)]; }
  int expert(int id) const { return id - first_[static_cast<std::size_t>(layer(id))]; }

 private:
  std::vector<int> n_experts_;
  std::vector<int> first_;
  std::vector<std::int32_t> layer_of_;
  int n_total_ = 0;
};

}  // namespace moeflux
