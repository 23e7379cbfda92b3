// A fixed-size block of 64-byte aligned memory. Pages are committed when first touched, so a buffer
// sized for the longest context costs only what is used of it. Zero-filled.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace moeflux {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t bytes);  // throws Error(OutOfMemory)
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    AlignedBuffer(std::move(other)).swap(*this);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  float* floats() const { return static_cast<float*>(static_cast<void*>(data_)); }

 private:
  void swap(AlignedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace moeflux
