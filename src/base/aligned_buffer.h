// A fixed-size block of 64-byte aligned memory. Pages are committed when first touched, so a buffer
// sized for the longest context costs only what is used of it. Large ones are made of huge pages
// where the system grants them: what strides through them would miss the TLB. Zero-filled.
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
    std::swap(mapping_, other.mapping_);
    std::swap(mapping_bytes_, other.mapping_bytes_);
  }

  std::byte* data_ = nullptr;  // inside the mapping
  std::size_t size_ = 0;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
};

// Memory that disks fill fastest and all processors read: on huge pages of any size, spread over
// the nodes of the machine. A request to a disk lists the pages it fills and holds only so many:
// with 4 KiB pages a large read becomes many small requests. For what many reads land in.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  explicit HugeBuffer(std::size_t bytes);  // throws Error(OutOfMemory)

  std::byte* data() const { return memory_.data(); }
  std::size_t size() const { return memory_.size(); }
  std::span<std::byte> bytes() const { return {data(), size()}; }

 private:
  AlignedBuffer memory_;
};

}  // namespace moeflux
