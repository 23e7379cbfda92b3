// What the kernels of norm_rows.cu take: norms of many rows.
#pragma once

#include "backends/cuda/kernels/elementwise.h"

namespace moeflux::gpu {

struct NormRowsParams {
  RmsNormParams norm;  // rows at multiples of 16 bytes, of whole quads
  std::int32_t rows, unused;
};

// A row is held in registers: by a warp, or by a block.
inline constexpr int kNormRowThreads = 256, kNormQuads = 8;  // of a thread
inline constexpr int kMostOfWarp = 32 * 4 * kNormQuads;
inline constexpr int kMostOfBlock = kNormRowThreads * 4 * kNormQuads;

}  // namespace moeflux::gpu
