// What the kernels of matvec*.cu take: products of few rows of activations.
#pragma once

#include <cstddef>

#include "backends/cuda/kernels/operands.h"

namespace moeflux::gpu {

inline constexpr int kMostJobs = 8;  // products of a launch
inline constexpr int kVectorThreads = 256, kVectorWarps = kVectorThreads / kWarp;
inline constexpr int kVectorColumns = 32;          // of a chunk, which a thread takes at once
inline constexpr std::size_t kMostVectorRows = 4;  // of activations, of a launch
inline constexpr int kMostVectorColumns = 16384;   // that fit the memory of a block

enum class Activation : std::int32_t { Silu, Gelu, ClampedSwiglu };

struct ActivationParams {
  Activation kind;
  float alpha, limit;
};

struct VectorJob {
  DeviceWeight weight;
  const float* bias;  // null: none
  const float* x;
  float* y;
  std::int64_t x_stride, y_stride;
  std::int32_t first_block, unused;
};

struct MatvecParams {
  VectorJob jobs[kMostJobs];
  std::int32_t n_jobs, n_rows;  // rows of activations
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
};

// Where an expert's planes lie, as addresses: backends/expert_table.h's ExpertPlace, found. Null
// data: the expert is not there, and what would be computed with it is left out.
struct FoundPlanes {
  const unsigned char *data, *scales, *biases;
};
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
};

}  // namespace moeflux::gpu
