// Memory that operations keep between calls: it grows to the largest size that was asked for, and
// what was in it goes. Nothing more than that size is ever held, as resize() might.
#pragma once

#include <cstddef>
#include <vector>

#include "base/aligned_buffer.h"

namespace moeflux::cpu {

inline float* grown(std::vector<float>& memory, std::size_t n) {
  if (memory.size() < n) {
    std::vector<float>().swap(memory);  // freed before more is taken
    memory = std::vector<float>(n);
  }
  return memory.data();
}

inline std::byte* grown(AlignedBuffer& memory, std::size_t bytes) {
  if (memory.size() < bytes) {
    memory = {};
    memory = AlignedBuffer(bytes);
  }
  return memory.data();
}

}  // namespace moeflux::cpu
