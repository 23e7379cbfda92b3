// What the kernels of elementwise.cu take. Strides are in elements from one row to the next.
#pragma once

#include "backends/cuda/kernels/operands.h"

namespace moeflux::gpu {

struct EmbedParams {
  DeviceWeight table;
  const std::int32_t* tokens;
  float* out;
  std::int64_t out_stride;
  float scale;
  std::int32_t unused;
};

// At most, and where norms are part of another kernel: with more, sums would differ.
inline constexpr int kNormThreads = 512;

struct RmsNormParams {
  const float* x;
  const float* weight;  // null: ones
  float* out;
  std::int64_t x_stride, out_stride;
  std::int32_t d;
  float eps;
};

struct AddParams {
  const float* x;
  float* y;
  const float* scale;  // null: 1
  std::int64_t n;
};

struct BoundParams {  // clamp and softcap
  float* x;
  std::int64_t stride;
  std::int32_t cols;
  float bound;
};

struct RopeParams {
  float* x;
  std::int64_t stride, head_stride;
  const std::int32_t* positions;
  const float* inverse_frequencies;
  std::int32_t n_heads, half, step, partner;
  float magnitude;
  std::int32_t unused;
};

struct StoreKvParams {
  DeviceKv cache;
  const float* x;
  std::int64_t x_stride;
  const std::int32_t* positions;
};

// A few words that go to the host, or come from it.
struct CopyWordsParams {
  const std::uint32_t* from;
  std::uint32_t* to;
  std::int64_t n;
};

}  // namespace moeflux::gpu
