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
  std::int32_t heads_alternate, is_exact;
  float eps, q_scale;
  std::uint16_t* matrices;  // of chunks: [chunk][value head][2][row][hi | lo][column]
};

// The state of a head is taken in columns, in blocks of as many.
inline constexpr int kDeltaColumns = 32;
inline constexpr int kDeltaThreads = 256;
// Of a row alone, for all columns of a head.
inline constexpr int kDeltaStepThreads = 512;

// In chunks (delta_chunks.cu): rows of a chunk, columns of a head's state that a block walks with.
// Keys have 128 values. Numbers are two 16-bit floats each, whose sum they are: rows of the first
// ones, then of the others.
inline constexpr int kChunkRows = 64, kChunkKey = 128, kChunkColumns = 32;
inline constexpr int kChunkThreads = 256, kChunkMatrixThreads = 128;
inline constexpr int kChunkMatrix = kChunkRows * kChunkRows * 2;   // 16-bit floats
inline constexpr int kChunkKeyBytes = kChunkRows * kChunkKey * 4;  // keys or queries
inline constexpr int kChunkMatrixBytes = kChunkMatrix * 2;
inline constexpr int kChunkColumnBytes = kChunkColumns * 4;  // of a row of the state
inline constexpr int kWalkSharedBytes =
    3 * kChunkKeyBytes + 2 * kChunkMatrixBytes + (kChunkKey + kChunkRows) * kChunkColumnBytes;
inline constexpr int kMatricesSharedBytes = 2 * kChunkKeyBytes;

// Rows that a thread of short_conv_rows takes.
inline constexpr int kConvRun = 16;
inline constexpr int kConvThreads = 128;

}  // namespace moeflux::gpu
