// The dense weights of a model, read once into one block of memory and kept there.
#pragma once

#include <cstdint>
#include <functional>

#include "base/memory_budget.h"
#include "io/async_reader.h"
#include "base/aligned_buffer.h"
#include "model/model_tensors.h"
#include "source/model_source.h"

namespace moeflux {

// How weights of products are to lie in memory.
struct Arrangement {
  bool in_panels = false;  // affine ones
  // Calls the body for 0 .. n - 1, on several threads if it can.
  std::function<void(std::int64_t n, const std::function<void(std::int64_t)>& body)> parallel_for =
      {};
};

using LoadProgress = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)>;

class WeightStore {
 public:
  // Reserves "dense weights" from `budget` before reading. Throws Error(OutOfMemory) or Error(Io).
  // `reader` reads the source's disk files. What has a checksum is checked.
  WeightStore(const ModelSource& source, const ModelTensors<Stored>& stored, AsyncReader& reader,
              MemoryBudget& budget, const LoadProgress& progress,
              const Arrangement& arrangement = {});

  const ModelTensors<Resident>& tensors() const { return tensors_; }
  std::uint64_t bytes() const { return reservation_.bytes(); }
  std::span<const std::byte> memory() const { return memory_.bytes(); }

  // Bytes the dense weights of a model take in memory.
  static std::uint64_t bytes_needed(const ModelTensors<Stored>& stored);

 private:
  MemoryBudget::Reservation reservation_;
  HugeBuffer memory_;
  ModelTensors<Resident> tensors_;
};

}  // namespace moeflux
