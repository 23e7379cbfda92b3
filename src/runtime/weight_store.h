// The dense weights of a model, read once into one buffer of the backend and kept there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "backends/backend.h"
#include "base/memory_budget.h"
#include "io/async_reader.h"
#include "model/blocks.h"
#include "source/model_source.h"

namespace moeflux {

// The form of weights in a backend's memory; vectors are [1, size].
struct Resident {
  using Matrix = Weight;
  using Vector = View;
};

using LoadProgress = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)>;

class WeightStore {
 public:
  // Reserves "dense weights" from `budget` before reading. Throws Error(OutOfMemory) or Error(Io).
  // `reader` reads the source's disk files. What has a checksum is checked; matrices lie as the
  // backend wants them.
  WeightStore(const ModelSource& source, const ModelTensors<Stored>& stored, AsyncReader& reader,
              Backend& backend, MemoryBudget& budget, const LoadProgress& progress);

  const ModelTensors<Resident>& tensors() const { return tensors_; }
  std::uint64_t bytes() const { return reservation_.bytes(); }
  const Buffer& memory() const { return *memory_; }

  // Bytes the dense weights of a model take in memory.
  static std::uint64_t bytes_needed(const ModelTensors<Stored>& stored);

 private:
  MemoryBudget::Reservation reservation_;
  std::unique_ptr<Buffer> memory_;
  ModelTensors<Resident> tensors_;
};

}  // namespace moeflux
