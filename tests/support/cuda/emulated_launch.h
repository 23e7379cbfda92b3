// Launches of kernels on the emulated GPU.
#pragma once

#include <cstddef>
#include <string_view>

#include "support/cuda/emulated_gpu.h"

namespace moeflux::gpu {

struct EmulatedKernel {
  Body body;
  std::size_t params_size;
  int most_threads;
};

struct Grid {
  int x = 1, y = 1, z = 1;
  int threads = 32;
  std::size_t shared_bytes = 0;
};

const EmulatedKernel* find_kernel(std::string_view name);  // null: there is none

// Blocks run one after the other on the calling thread. Throws std::logic_error for what no GPU
// would run.
void run_kernel(const EmulatedKernel& kernel, const void* params, const Grid& grid);

}  // namespace moeflux::gpu
