#include "base/aligned_buffer.h"

#include <limits>
#include <memory>

#include <sys/mman.h>

#include "base/error.h"
#include "base/processors.h"

namespace moeflux {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// A page that is touched is committed whole: worth it where a buffer is hardly more than one, or
// so large that one more does not matter. Keys and values of a short context lie in between.
bool wants_huge_pages(std::size_t bytes) {
  return (bytes >= kHugePage && bytes < 2 * kHugePage) || bytes >= 8 * kHugePage;
}

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const bool huge = wants_huge_pages(bytes);
  void* memory = MAP_FAILED;
  if (bytes <= std::numeric_limits<std::size_t>::max() - kHugePage) {
    mapping_bytes_ = huge ? bytes + kHugePage : bytes;  // room to align
    memory =
        ::mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (memory == MAP_FAILED)
    fail(Errc::OutOfMemory, "the system has no {} bytes of memory left", bytes);
  mapping_ = memory;
  if (huge) {
    std::size_t space = mapping_bytes_;
    memory = std::align(kHugePage, bytes, memory, space);
    static_cast<void>(::madvise(memory, bytes, MADV_HUGEPAGE));  // only advice
  }
  data_ = static_cast<std::byte*>(memory);
}

AlignedBuffer::~AlignedBuffer() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
}

HugeBuffer::HugeBuffer(std::size_t bytes) : memory_(bytes) {
  // Of any size; only advice.
  if (bytes > 0) static_cast<void>(::madvise(memory_.data(), bytes, MADV_HUGEPAGE));
  spread_over_memory_nodes(memory_.data(), bytes);
}

}  // namespace moeflux
