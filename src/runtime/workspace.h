// Scratch memory of a forward pass: one block, sized once for the largest batch, handed out like a
// stack.
#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/error.h"
#include "base/memory_budget.h"

namespace moeflux {

class Workspace {
 public:
  Workspace(MemoryBudget& budget, std::uint64_t n_floats)
      : reservation_(budget.reserve("workspace", n_floats * sizeof(float))),
        memory_(n_floats * sizeof(float)) {}

  // Gives back everything taken since its construction.
  class Frame {
   public:
    explicit Frame(Workspace& workspace) : workspace_(workspace), mark_(workspace.used_) {}
    ~Frame() { workspace_.used_ = mark_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    float* floats(std::int64_t n) { return workspace_.take(n); }
    std::int32_t* ints(std::int64_t n) {
      static_assert(sizeof(std::int32_t) == sizeof(float));
      return static_cast<std::int32_t*>(static_cast<void*>(workspace_.take(n)));
    }

   private:
    Workspace& workspace_;
    std::uint64_t mark_;
  };

  // What take() rounds a request up to: rows start on cache lines.
  static std::uint64_t padded(std::int64_t n) {
    return (static_cast<std::uint64_t>(n) + 15) / 16 * 16;
  }

 private:
  float* take(std::int64_t n) {
    const std::uint64_t end = used_ + padded(n);
    MOEFLUX_ASSERT(end * sizeof(float) <= memory_.size());
    float* out = memory_.floats() + used_;
    used_ = end;
    return out;
  }

  MemoryBudget::Reservation reservation_;
  AlignedBuffer memory_;
  std::uint64_t used_ = 0;
};

}  // namespace moeflux
