// A cache for tests of attention, filled from plain rows.
#pragma once

#include <vector>

#include "backends/backend.h"
#include "base/aligned_buffer.h"
#include "support/operands.h"

namespace moeflux::test {

class KvMemory {
 public:
  KvMemory(const KvShape& shape, Backend& backend, const std::vector<float>& rows)
      : memory_(shape.bytes()), view_(operand(shape, memory_.data())) {
    const std::int64_t width = std::int64_t{shape.n_heads} * shape.d;
    const std::int64_t n = static_cast<std::int64_t>(rows.size()) / width;
    backend.store_kv({.cache = view_, .x = operand(rows, n), .positions = positions(0, n)});
  }
  const KvView& view() const { return view_; }

 private:
  AlignedBuffer memory_;
  KvView view_;
};

}  // namespace moeflux::test
