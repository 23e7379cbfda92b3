// Memory of a test as operands of backends that compute on the host. Nothing is copied: the memory
// must live as long as operations use it, the buffers that stand for it live as long as the
// program.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "backends/kv_cache.h"
#include "backends/memory.h"
#include "quant/weight_format.h"

namespace moeflux::test {

// What begins at an address, of a size that only the test knows.
inline const Buffer* borrowed(const void* address) {
  class Borrowed final : public Buffer {
   public:
    explicit Borrowed(std::byte* begin) : Buffer(MemoryKind::Host, 0, begin, begin) {}
  };
  static std::map<const void*, std::unique_ptr<Buffer>> all;
  std::unique_ptr<Buffer>& buffer = all[address];
  if (buffer == nullptr)
    buffer = std::make_unique<Borrowed>(static_cast<std::byte*>(const_cast<void*>(address)));
  return buffer.get();
}

// Rows of floats; packed, unless `stride` says how many lie from one to the next.
inline View operand(const float* x, std::int64_t rows, std::int64_t cols, std::int64_t stride = 0) {
  return {.buffer = borrowed(x), .rows = rows, .cols = cols, .stride = stride == 0 ? cols : stride};
}

// All of a vector, as so many rows.
inline View operand(const std::vector<float>& x, std::int64_t rows = 1) {
  return operand(x.data(), rows, static_cast<std::int64_t>(x.size()) / rows);
}
inline View operand(const std::vector<std::int32_t>& x, std::int64_t rows = 1) {
  View view{.buffer = borrowed(x.data()),
            .rows = rows,
            .cols = static_cast<std::int64_t>(x.size()) / rows,
            .type = ElementType::I32};
  view.stride = view.cols;
  return view;
}

inline Weight operand(const WeightView& w) {
  const std::byte* first = w.data;
  for (const std::byte* plane : {w.scales, w.biases}) {
    if (plane != nullptr) first = std::min(first, plane);
  }
  const auto offset = [&](const std::byte* plane) {
    return plane == nullptr ? Weight::kNoPlane : static_cast<std::uint64_t>(plane - first);
  };
  return {.format = w.format,
          .rows = w.rows,
          .cols = w.cols,
          .buffer = borrowed(first),
          .data = offset(w.data),
          .scales = offset(w.scales),
          .biases = offset(w.biases),
          .block_row0 = w.block_row0};
}

inline KvView operand(const KvShape& shape, const std::byte* memory) {
  return {.shape = shape, .buffer = borrowed(memory)};
}

// Positions first .. first + n - 1.
inline View positions(std::int64_t first, std::int64_t n) {
  static std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::int32_t>> all;
  std::vector<std::int32_t>& values = all[{first, n}];
  if (values.empty()) {
    values.resize(static_cast<std::size_t>(n));
    std::iota(values.begin(), values.end(), static_cast<std::int32_t>(first));
  }
  return operand(values);
}

}  // namespace moeflux::test
