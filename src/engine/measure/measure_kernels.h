// How fast this machine multiplies weights of one format with one row of activations, weights
// coming from memory: what a token takes where the kernels, and not memory, are the limit.
#pragma once

#include <cstddef>

#include "backends/backend.h"
#include "quant/weight_format.h"

namespace moeflux {

struct KernelMeasureOptions {
  std::size_t bytes = std::size_t{256} << 20;  // of weights; far more than the caches hold
  double seconds = 0.2;                        // at least one pass is made
};

// Bytes of weights, scales and biases per second. 0 for a matrix without columns.
double measure_kernels(Backend& backend, const WeightFormat& format, std::int64_t cols,
                       const KernelMeasureOptions& options);

}  // namespace moeflux
