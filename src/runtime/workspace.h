// Scratch memory of a forward pass: one buffer of the backend, sized once for the largest pass and
// handed out like a stack. What one frame has given back the next one may take at once: operations
// run in order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "backends/backend.h"
#include "base/error.h"
#include "base/memory_budget.h"

namespace moeflux {

class Workspace {
 public:
  Workspace(Backend& backend, MemoryBudget& budget, std::uint64_t bytes)
      : reservation_(budget.reserve("workspace", bytes)),
        memory_(backend.allocate(bytes, MemoryKind::Device)) {}

  // Gives back everything taken since its construction.
  class Frame {
   public:
    explicit Frame(Workspace& workspace) : workspace_(workspace), mark_(workspace.used_) {}
    ~Frame() { workspace_.used_ = mark_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    View floats(std::int64_t rows, std::int64_t cols) {
      return workspace_.take(rows, cols, ElementType::F32);
    }
    View ints(std::int64_t rows, std::int64_t cols) {
      return workspace_.take(rows, cols, ElementType::I32);
    }
    // Rows of so many floats that could be taken now.
    std::int64_t rows_left(std::int64_t cols) const {
      const std::uint64_t left = workspace_.memory_->bytes() - workspace_.used_;
      return static_cast<std::int64_t>(left / kElementBytes) / cols;
    }

   private:
    Workspace& workspace_;
    std::uint64_t mark_;
  };

  std::uint64_t peak_bytes() const { return peak_; }

 private:
  static constexpr std::uint64_t kAlignment = 64;  // rows start on cache lines

  View take(std::int64_t rows, std::int64_t cols, ElementType type) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(rows * cols) * kElementBytes;
    const std::uint64_t begin = used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    MOEFLUX_ASSERT(used_ <= memory_->bytes());
    peak_ = std::max(peak_, used_);
    return {memory_.get(), begin, rows, cols, cols, type};
  }

  MemoryBudget::Reservation reservation_;
  std::unique_ptr<Buffer> memory_;
  std::uint64_t used_ = 0, peak_ = 0;
};

}  // namespace moeflux
