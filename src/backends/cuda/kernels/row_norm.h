// The length of a row of activations, in the same order of summation wherever it is needed.
#pragma once

#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/gpu.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// A thread's part of the sum of squares: the first kNormThreads take eight values at a time.
GPU_INLINE float squares_of_eight(const float (&values)[8], float sum) {
  GPU_UNROLL
  for (int i = 0; i < 8; ++i) sum += values[i] * values[i];
  return sum;
}
GPU_INLINE float squares_of_thread(const float* x, int d) {
  float sum = 0;
  GPU_ROLLED
  for (int at = 8 * thread(); at < d && thread() < kNormThreads; at += 8 * kNormThreads) {
    float values[8];
    GPU_UNROLL
    for (int i = 0; i < 8; ++i) values[i] = at + i < d ? x[at + i] : 0.0f;
    sum = squares_of_eight(values, sum);
  }
  return sum;
}

// 1 / sqrt(mean(x^2) + eps) from the parts of all threads. `memory` is shared, 32 floats.
GPU_INLINE float inverse_length(float squares, int d, float eps, float* memory) {
  squares = warp_sum(squares);
  if (lane() == 0) memory[warp()] = squares;
  sync();
  const float of_all = warp_sum(lane() < n_threads() / kWarp ? memory[lane()] : 0.0f);
  return inverse_sqrt(of_all / static_cast<float>(d) + eps);
}

}  // namespace moeflux::gpu
GPU_CODE_END
