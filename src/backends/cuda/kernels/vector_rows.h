// Rows of a stored matrix times few rows of activations.
//
// A block brings the activations into its memory once. Then each warp takes some rows of weights; a
// thread of it takes every 32nd chunk of each, reads it as it is stored and multiplies it.
#pragma once

#include "backends/cuda/kernels/gpu.h"
#include "backends/cuda/kernels/matvec.h"
#include "backends/cuda/kernels/vector_memory.h"
#include "backends/cuda/kernels/weight_chunks.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// Threads of a warp that share a row of weights: a power of two.
GPU_INLINE int sharers(int n_chunks) {
  return n_chunks >= kWarp ? kWarp
         : n_chunks <= 1   ? 1
                           : 1 << (32 - count_leading_zeros(n_chunks - 1));
}

// Rows of weights that a warp takes at a time.
GPU_INLINE int rows_at_a_time(int n_chunks) {
  return kWarp >> (31 - count_leading_zeros(sharers(n_chunks)));
}
// So that the rows that a warp will take are on their way from memory, more than it has registers
// for.
GPU_INLINE void prefetch_rows(const DeviceWeight& w, int first, int n) {
  constexpr int kLine = 128;
  if (first + n > w.rows) n = w.rows - first;
  const auto plane = [](const unsigned char* begin, std::int64_t from, int bytes) GPU_LAMBDA {
    GPU_ROLLED
    for (int at = lane() * kLine; at < bytes; at += kWarp * kLine) prefetch(begin + from + at);
  };
  const int row_bytes = static_cast<int>(w.row_bytes);
  plane(w.data, std::int64_t{first} * row_bytes, n * row_bytes);
  const std::int64_t scales = 2 * std::int64_t{first} * w.scales_per_row;
  plane(w.scales, scales, 2 * n * w.scales_per_row);
  plane(w.biases, scales, 2 * n * w.scales_per_row);
}

// A warp's rows, from first_row on `times` times as many as it takes at a time, of one matrix or of
// two of the same shape, times the activations: for each row `emit(row, n, sum, sum of the second
// matrix)` by one thread. `before` runs when the first weights are on their way, and brings the
// activations. While some are multiplied the next are on their way.
//
// The loop is short on purpose: a kernel runs for microseconds, in which its instructions have to
// come from memory as well.
template <class F, int kN, bool kTwo, class Before, class Emit>
GPU_INLINE void multiply_rows(const DeviceWeight& a, const DeviceWeight& b, int first_row,
                              int times, int n_rows, const Before& before, const Emit& emit) {
  constexpr int kSteps = F::kBits <= 4 ? 2 : 1, kAtOnce = kSteps * kWarp;
  const int n_chunks = a.cols / kVectorColumns, n_sharers = sharers(n_chunks);
  const int part = lane() & (n_sharers - 1);
  const int shift = 31 - count_leading_zeros(n_sharers), at_a_time = kWarp >> shift;
  int row = first_row + (lane() >> shift), first = part;
  const int group_shift = F::kUsual ? 31 - count_leading_zeros(a.group / kVectorColumns) : 0;
  using Weights = typename ChunksOf<F, kSteps>::Type;
  Weights next_a, next_b;
  const auto load_next = [&]() GPU_LAMBDA {
    const int at = row < a.rows ? row : a.rows - 1;
    if constexpr (F::kUsual) {
      next_a.load(a, at, first, n_chunks - 1, group_shift);
      if constexpr (kTwo) next_b.load(b, at, first, n_chunks - 1, group_shift);
    } else {
      const int rows[1] = {at};
      next_a.load(a, rows, first);
      if constexpr (kTwo) next_b.load(b, rows, first);
    }
  };
  load_next();
  if constexpr (F::kUsual) {
    if (times > 1) {
      prefetch_rows(a, first_row, times * at_a_time);
      if constexpr (kTwo) prefetch_rows(b, first_row, times * at_a_time);
    }
  }
  const float all_of_a = tensor_scale<F>(a), all_of_b = kTwo ? tensor_scale<F>(b) : 1.0f;
  const VectorMemory memory = before();
  sync();
  float sums_a[1][kN] = {}, sums_b[1][kN] = {};
  const unsigned char* values = memory.values + part * 16;
  const float* units = memory.scales + 2 * part;
  const bool is_half = a.scale_type == ScaleType::F16;
  GPU_ROLLED
  for (int left = times * ((n_chunks + kAtOnce - 1) / kAtOnce); left > 0; --left) {
    const Weights of_a = next_a, of_b = next_b;
    const int own_row = row, own_first = first;
    first += kAtOnce;
    const bool ends = first - part >= n_chunks;
    if (ends) {
      row += at_a_time;
      first = part;
    }
    if (left > 1) load_next();
    if constexpr (F::kUsual) {
      const int batch = own_first - part;
      of_a.multiply(is_half, values + batch * 64, memory.row_bytes, units + 2 * batch,
                    2 * memory.n_chunks, sums_a[0]);
      if constexpr (kTwo)
        of_b.multiply(is_half, values + batch * 64, memory.row_bytes, units + 2 * batch,
                      2 * memory.n_chunks, sums_b[0]);
    } else {
      of_a.multiply(a, own_first, all_of_a, memory, sums_a);
      if constexpr (kTwo) of_b.multiply(b, own_first, all_of_b, memory, sums_b);
    }
    if (!ends) continue;
    GPU_UNROLL
    for (int n = 0; n < kN; ++n) {
      float sum = sums_a[0][n], second = sums_b[0][n];
      GPU_UNROLL
      for (int mask = kWarp / 2; mask > 0; mask /= 2) {
        if (mask >= n_sharers) continue;
        sum += shuffle_xor(sum, mask);
        if constexpr (kTwo) second += shuffle_xor(second, mask);
      }
      if (part == 0 && own_row < a.rows && n < n_rows) emit(own_row, n, sum, second);
      sums_a[0][n] = sums_b[0][n] = 0;
    }
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
