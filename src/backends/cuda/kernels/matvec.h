// What the kernels of matvec*.cu take: products of few rows of activations.
#pragma once

#include <cstddef>

#include "backends/cuda/kernels/operands.h"

namespace moeflux::gpu {

inline constexpr int kMostJobs = 4;  // products of a launch
inline constexpr int kVectorThreads = 256, kVectorWarps = kVectorThreads / kWarp;
inline constexpr int kVectorColumns = 32;          // of a chunk, which a thread takes at once
inline constexpr std::size_t kMostVectorRows = 4;  // of activations, of a launch
inline constexpr int kMostVectorColumns = 16384;   // that fit the memory of a block

enum class Activation : std::int32_t { Silu, Gelu, ClampedSwiglu };

struct ActivationParams {
  Activation kind;
  float alpha, limit;
};

// Where a matrix lies. Null data: it is not there, and what would be computed with it is left out.
struct FoundPlanes {
  const unsigned char *data, *scales, *biases;
};
// One of the products of a launch: of one format, and of the same activations.
struct VectorJob {
  FoundPlanes planes;
  const float* bias;  // null: none
  float* y;
  std::int32_t y_stride, rows;
  std::int32_t first_block, block_row0;
};

// Rows of activations are normed first, and kept.
struct VectorNorm {
  const float* weight;
  float* out;  // null: there is no norm
  std::int64_t out_stride;
  float eps;
  std::int32_t unused;
};

struct MatvecParams {
  DeviceWeight weight;  // what all jobs share
  VectorJob jobs[kMostJobs];
  VectorNorm norm;
  const float* x;
  float* total;  // results are added to it as well; null: to nothing
  std::int64_t x_stride, total_stride;
  std::int32_t n_jobs, n_rows;  // rows of activations
  std::int32_t times, unused;   // a warp takes rows of weights
};

// y = activation(gate x, up x)
struct GatedParams {
  DeviceWeight gate, up;
  const float *gate_bias, *up_bias;
  const float* x;
  float* y;
  std::int64_t x_stride, y_stride;
  ActivationParams activation;
  std::int32_t n_rows;
  std::int32_t times, unused;
};

// backends/expert_table.h's ExpertPlace, as addresses.
struct FoundExpert {
  FoundPlanes gate, up, down;
};

// For each pair of a row and one of its experts: hidden, and then out, of the pair.
struct ExpertPairsParams {
  DeviceWeight gate, up, down;                   // formats and shapes
  const FoundExpert* found;                      // [pair]
  const std::int32_t* ids;                       // [pair]
  const float *gate_bias, *up_bias, *down_bias;  // [n_experts][...], null: none
  const float* x;
  float* hidden;
  float* out;
  std::int64_t x_stride, hidden_stride, out_stride;
  ActivationParams activation;
  std::int32_t top_k;
  std::int32_t n_pairs, times;
  // The shared expert of each row, blocks after those of the pairs. No data: there is none.
  DeviceWeight shared_gate, shared_up;
  const float *shared_gate_bias, *shared_up_bias;
  float* shared_hidden;
  std::int64_t shared_hidden_stride;
};

// What the experts of a row yield, put together: out = the sum over its pairs of weight * down
// hidden, plus gate * down hidden of the shared expert; total += out.
struct ExpertSumsParams {
  DeviceWeight down;
  const FoundExpert* found;  // [pair]
  const std::int32_t* ids;   // [pair]
  const float* weights;      // [pair]
  const float* down_bias;    // [n_experts][...], null: none
  const float* hidden;
  DeviceWeight shared_down;  // no data: there is none
  const float* shared_bias;  // null: none
  const float* shared_hidden;
  const float* shared_gate;  // [row], null: the shared expert counts as it is
  float* out;
  float* total;  // null: none
  std::int64_t hidden_stride, shared_hidden_stride, out_stride, total_stride;
  std::int32_t top_k, times, shared_offset;
  float pairs_of_chunk;  // 1 / chunks of a pair
};
inline constexpr int kMostSummed = 32;  // experts of a row

}  // namespace moeflux::gpu
