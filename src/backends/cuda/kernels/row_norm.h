// The length of a row of activations, in the same order of summation wherever it is needed.
#pragma once

#include "backends/cuda/kernels/gpu.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// 1 / sqrt(mean(x^2) + eps), for all threads of the block. `memory` is shared, 32 floats.
GPU_INLINE float inverse_length(const float* x, int d, float eps, float* memory) {
  float squares = 0;
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
  for (int at = 4 * thread(); at < d; at += 4 * n_threads()) {
    if (is_aligned && at + 4 <= d) {
      const FloatQuad quad = *reinterpret_cast<const FloatQuad*>(x + at);
      squares += quad.x * quad.x;
      squares += quad.y * quad.y;
      squares += quad.z * quad.z;
      squares += quad.w * quad.w;
    } else {
      for (int i = at; i < d && i < at + 4; ++i) squares += x[i] * x[i];
    }
  }
  const float mean = block_sum(squares, memory) / static_cast<float>(d);
  return inverse_sqrt(mean + eps);
}

}  // namespace moeflux::gpu
GPU_CODE_END
