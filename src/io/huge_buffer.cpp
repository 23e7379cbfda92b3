#include "io/huge_buffer.h"

#include "base/processors.h"

namespace moeflux {

HugeBuffer::HugeBuffer(std::size_t bytes) : memory_(bytes) {
  spread_over_memory_nodes(memory_.data(), bytes);
}

}  // namespace moeflux
