// A stored matrix in host memory, in rows as its format says: for those who look at weights once.
// The engine loads its own (runtime/weight_store.h, experts/expert_store.h).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "model/stored_tensor.h"
#include "source/model_source.h"

namespace moeflux {

// What repack_rows() has found. Throws Error(Unsupported).
[[noreturn]] void refuse_zero_points(const std::string& matrix);
// All rows.
void repack_all(const StoredMatrix& matrix, const StoredPlanes& from, const WeightView& to);

class LoadedMatrix {
 public:
  // Throws Error(Io), or Error(Unsupported) for a zero point out of range.
  LoadedMatrix(const ModelSource& source, const StoredMatrix& matrix);

  // Valid while this lives.
  const WeightView& view() const { return view_; }
  std::span<const std::byte> data() const { return {view_.data, bytes_.data}; }
  std::span<const std::byte> scales() const { return {view_.scales, bytes_.scales}; }
  std::span<const std::byte> biases() const { return {view_.biases, bytes_.biases}; }

 private:
  PlaneBytes bytes_;
  std::unique_ptr<std::byte[]> memory_;
  WeightView view_;
};

}  // namespace moeflux
