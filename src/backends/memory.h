// Memory of a backend, and the views of it that operations take.
//
// A buffer belongs to the backend that allocated it. Operations name places in it by views: plain
// values without a pointer, which only the backend resolves. The host reaches the bytes of a buffer
// where host() is not null, and never while operations that use them may still run
// (Backend::wait()).
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/weight_format.h"

namespace moeflux {

enum class MemoryKind {
  Device,  // operations reach it; the host only where both share memory
  Pinned,  // both reach it
  Host,    // the host reaches it; operations need not
};

enum class Backing {
  Touched,  // pages are taken as they are first written: contexts, scratch
  Huge,     // in pages as large as possible: what drives fill and all processors read
};

class Buffer {
 public:
  virtual ~Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  MemoryKind kind() const { return kind_; }
  std::uint64_t bytes() const { return bytes_; }
  std::byte* host() const { return host_; }  // null where the host cannot reach it

  // Where operations find the bytes. For backends only.
  std::byte* address() const { return address_; }

 protected:
  Buffer(MemoryKind kind, std::uint64_t bytes, std::byte* address, std::byte* host)
      : kind_(kind), bytes_(bytes), address_(address), host_(host) {}

 private:
  MemoryKind kind_;
  std::uint64_t bytes_;
  std::byte* address_;
  std::byte* host_;
};

// A run of bytes in a buffer.
struct Bytes {
  const Buffer* buffer = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;

  bool empty() const { return size == 0; }
};

inline Bytes whole(const Buffer& buffer) {
  return {&buffer, 0, buffer.bytes()};
}

enum class ElementType : std::uint8_t { F32, I32 };  // both of 4 bytes
inline constexpr std::uint64_t kElementBytes = 4;

// A matrix of activations, small integers or floating-point weights.
struct View {
  const Buffer* buffer = nullptr;
  std::uint64_t offset = 0;  // of the first element, in bytes
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  // elements from one row to the next
  ElementType type = ElementType::F32;

  bool empty() const { return buffer == nullptr; }
  bool is_packed() const { return stride == cols; }
  std::int64_t size() const { return rows * cols; }
  // From the first element to the last, gaps between rows included.
  Bytes bytes() const {
    const std::int64_t span = rows == 0 ? 0 : (rows - 1) * stride + cols;
    return {buffer, offset, static_cast<std::uint64_t>(span) * kElementBytes};
  }

  View row_range(std::int64_t first, std::int64_t n) const {
    View part = *this;
    part.offset += static_cast<std::uint64_t>(first * stride) * kElementBytes;
    part.rows = n;
    return part;
  }
  View col_range(std::int64_t first, std::int64_t n) const {
    View part = *this;
    part.offset += static_cast<std::uint64_t>(first) * kElementBytes;
    part.cols = n;
    return part;
  }
  // The same elements as rows of another width. For packed views only.
  View reshaped(std::int64_t new_rows, std::int64_t new_cols) const {
    View same = *this;
    same.rows = new_rows;
    same.cols = same.stride = new_cols;
    return same;
  }
};

// A stored weight matrix [rows, cols]: what WeightView is on the host, as an operand.
struct Weight {
  static constexpr std::uint64_t kNoPlane = UINT64_MAX;

  WeightFormat format{};
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const Buffer* buffer = nullptr;
  std::uint64_t data = kNoPlane, scales = kNoPlane, biases = kNoPlane;  // offsets in the buffer
  std::int64_t block_row0 = 0;                                          // as in WeightView

  bool empty() const { return data == kNoPlane; }
};

// What has been enqueued up to some moment.
using Mark = std::uint64_t;

}  // namespace moeflux
