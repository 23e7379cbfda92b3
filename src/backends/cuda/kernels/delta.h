// What the kernels of delta.cu take: short convolution and gated delta rule.
#pragma once

#include <cstdint>

namespace moeflux::gpu {

struct ConvParams {
  const float* x;
  const float* weight;  // [width][channels]
  float* state;         // [width - 1][channels]
  float* out;
  std::int32_t channels, width, n, unused;
};

struct DeltaParams {
  float* qkv;  // [n][conv_dim]
  float* z;
  float* b;
  float* a;
  const float* a_log;
  const float* dt_bias;
  const float* norm;
  float* state;  // [n_value_heads][d_key][d_value]
  float* out;    // [n][n_value_heads * d_value]
  std::int32_t n, n_key_heads, n_value_heads, d_key, d_value, gate_is_silu;
  std::int32_t heads_alternate, unused;
  float eps, q_scale;
};

// The state of a head is taken in columns, in blocks of as many.
inline constexpr int kDeltaColumns = 32;
inline constexpr int kDeltaThreads = 256;
// Of a row alone, for all columns of a head.
inline constexpr int kDeltaStepThreads = 1024;

}  // namespace moeflux::gpu
