#include "io/huge_buffer.h"

#include <sys/mman.h>

#include "base/processors.h"

namespace moeflux {

HugeBuffer::HugeBuffer(std::size_t bytes) : memory_(bytes) {
  // Of any size; only advice.
  if (bytes > 0) static_cast<void>(::madvise(memory_.data(), bytes, MADV_HUGEPAGE));
  spread_over_memory_nodes(memory_.data(), bytes);
}

}  // namespace moeflux
