// Where routed experts come from: reads one expert's planes out of the checkpoint's files into one contiguous slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "model/model_tensors.h"
#include "source/model_source.h"

namespace moeflux {

struct ExpertKey {
  int bank = 0;
  int expert = 0;
  friend bool operator==(const ExpertKey&, const ExpertKey&) = default;
};

struct ExpertView {
  WeightView gate, up, down;
};

class ExpertStore {
 public:
  ExpertStore(std::shared_ptr<const ModelSource> source, std::vector<ExpertBank> banks);

  int n_banks() const { return static_cast<int>(banks_.size()); }
  int n_experts(int bank) const { return banks_[static_cast<std::size_t>(bank)].gate.count(); }
  std::uint64_t n_experts_total() const { return n_total_; }
  std::size_t slot_bytes() const { return slot_bytes_; }  // holds any expert of the model

  std::uint64_t bytes(ExpertKey key) const;  // of the files that read() takes
  // Fills `slot` (slot_bytes() long) and returns views into it. Throws Error(Io) naming the file.
  ExpertView read(ExpertKey key, std::byte* slot) const;

 private:
  std::shared_ptr<const ModelSource> source_;
  std::vector<ExpertBank> banks_;
  std::size_t slot_bytes_ = 0;
  std::uint64_t n_total_ = 0;
};

}  // namespace moeflux
