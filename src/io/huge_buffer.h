// Memory that disks fill fastest and all processors read: an AlignedBuffer, spread over the nodes
// of the machine. A request to a disk lists the pages it fills and holds only so many: with 4 KiB
// pages a large read becomes many small requests. Use it for what many reads land in, such as the
// arena of an expert cache.
#pragma once

#include <cstddef>
#include <span>

#include "base/aligned_buffer.h"

namespace moeflux {

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
