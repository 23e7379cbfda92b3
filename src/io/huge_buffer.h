// Zeroed memory that disks fill fastest: aligned to 2 MiB and made of huge pages where the system
// grants them. A request to a disk lists the pages it fills and holds only so many: with 4 KiB
// pages a large read becomes many small requests. Use it for what many reads land in, such as the
// arena of an expert cache. Pages are committed when first touched.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace moeflux {

class HugeBuffer {
 public:
  HugeBuffer() = default;
  explicit HugeBuffer(std::size_t bytes);  // throws Error(OutOfMemory)
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept { swap(other); }
  HugeBuffer& operator=(HugeBuffer&& other) noexcept {
    HugeBuffer(std::move(other)).swap(*this);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  void swap(HugeBuffer& other) noexcept {
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

}  // namespace moeflux
