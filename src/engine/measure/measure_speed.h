// How fast this machine reads its memory, which bounds every token once its weights are there, and
// how fast it multiplies.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "quant/weight_format.h"

namespace moeflux {

struct MemoryMeasureOptions {
  // All threads together. Far more than the caches hold, or it is them that are measured; more than
  // is there is an Error.
  std::size_t bytes = std::size_t{512} << 20;
  double seconds = 0.3;  // at least one pass is made, however long it takes
  // Read instead of memory of its own, if there is any: nothing more is taken then.
  std::span<const std::byte> memory = {};
};

struct MemorySpeed {
  int n_threads = 0;
  double bytes_per_second = 0;
};

// Each thread reads a part of its own. Unless memory is given, it was the first to touch it: on a
// machine with several nodes it lies in the node of the thread. n_threads from 1 to 1024.
MemorySpeed measure_memory(int n_threads, const MemoryMeasureOptions& options);

// 1, 2, 4, ... and n_threads.
std::vector<int> thread_counts(int n_threads);

// How fast this machine multiplies weights of one format with one row of activations, weights
// coming from memory: what a token takes where the kernels, and not memory, are the limit.
struct KernelMeasureOptions {
  std::size_t bytes = std::size_t{256} << 20;  // of weights; far more than the caches hold
  double seconds = 0.2;                        // at least one pass is made
};

// Bytes of weights, scales and biases per second. 0 for a matrix without columns.
double measure_kernels(Backend& backend, const WeightFormat& format, std::int64_t cols,
                       const KernelMeasureOptions& options);

}  // namespace moeflux
