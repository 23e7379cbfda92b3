#include "io/huge_buffer.h"

#include <limits>
#include <memory>

#include <sys/mman.h>

#include "base/error.h"
#include "base/processors.h"

namespace moeflux {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

HugeBuffer::HugeBuffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = MAP_FAILED;
  if (bytes <= std::numeric_limits<std::size_t>::max() - kHugePage) {
    mapping_bytes_ = bytes + kHugePage;  // room to align; what is never touched costs nothing
    memory =
        ::mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (memory == MAP_FAILED) {
    fail(Errc::OutOfMemory, "the system has no {} bytes of memory left", bytes);
  }
  mapping_ = memory;
  std::size_t space = mapping_bytes_;
  data_ = static_cast<std::byte*>(std::align(kHugePage, bytes, memory, space));
  // Only advice: without huge pages reads are slower, not wrong.
  static_cast<void>(::madvise(data_, bytes, MADV_HUGEPAGE));
  spread_over_memory_nodes(data_, bytes);
}

HugeBuffer::~HugeBuffer() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
}

}  // namespace moeflux
