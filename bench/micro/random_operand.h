// Random floats in the memory of a backend, as an operand.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "random_floats.h"

namespace moeflux {

class RandomOperand {
 public:
  RandomOperand(Backend& backend, std::int64_t rows, std::int64_t cols)
      : buffer_(backend.allocate(static_cast<std::uint64_t>(rows * cols) * kElementBytes,
                                 MemoryKind::Device)),
        view_{.buffer = buffer_.get(), .rows = rows, .cols = cols, .stride = cols} {
    backend.upload(std::as_bytes(std::span<const float>(random_floats(rows * cols))),
                   whole(*buffer_));
  }
  operator const View&() const { return view_; }

  // As a weight of the same shape.
  Weight weight() const {
    return {.format = {.kind = WeightKind::F32},
            .rows = view_.rows,
            .cols = view_.cols,
            .buffer = buffer_.get(),
            .data = 0};
  }

 private:
  std::unique_ptr<Buffer> buffer_;
  View view_;
};

// Positions first .. first + n - 1.
class Positions {
 public:
  Positions(Backend& backend, std::int64_t first, std::int64_t n)
      : buffer_(
            backend.allocate(static_cast<std::uint64_t>(n) * kElementBytes, MemoryKind::Device)),
        view_{
            .buffer = buffer_.get(), .rows = 1, .cols = n, .stride = n, .type = ElementType::I32} {
    std::vector<std::int32_t> values(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(first + i);
    backend.upload(std::as_bytes(std::span<const std::int32_t>(values)), whole(*buffer_));
  }
  operator const View&() const { return view_; }

 private:
  std::unique_ptr<Buffer> buffer_;
  View view_;
};

}  // namespace moeflux
