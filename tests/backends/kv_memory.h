// A cache for tests of attention, filled from plain rows.
#pragma once

#include <vector>

#include "backends/backend.h"
#include "base/aligned_buffer.h"

namespace moeflux::test {

class KvMemory {
 public:
  KvMemory(const KvShape& shape, Backend& backend, const std::vector<float>& rows)
      : memory_(shape.bytes()), view_{shape, memory_.data()} {
    const std::int64_t width = std::int64_t{shape.n_heads} * shape.d;
    backend.store_kv(
        {view_, rows.data(), width, static_cast<std::int64_t>(rows.size()) / width, 0});
  }
  const KvView& view() const { return view_; }

 private:
  AlignedBuffer memory_;
  KvView view_;
};

}  // namespace moeflux::test
