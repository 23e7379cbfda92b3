// Norms of many rows, which are read once.
#include "backends/cuda/kernels/gpu.h"
#include "backends/cuda/kernels/norm_rows.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

// `sum` is over the threads that share a row, which are kThreads.
template <int kThreads, class Sum>
GPU_INLINE void normalize(const RmsNormParams& p, int row, int own, const Sum& sum) {
  const auto* x = reinterpret_cast<const FloatQuad*>(p.x + row * p.x_stride);
  auto* out = reinterpret_cast<FloatQuad*>(p.out + row * p.out_stride);
  const int n_quads = p.d / 4;
  FloatQuad quads[kNormQuads];
  float squares = 0;
  GPU_UNROLL
  for (int i = 0; i < kNormQuads; ++i) {
    const int at = own + i * kThreads;
    if (at >= n_quads) continue;
    const FloatQuad q = quads[i] = x[at];
    squares += q.x * q.x + q.y * q.y + (q.z * q.z + q.w * q.w);
  }
  const float inverse = 1.0f / sqrt(sum(squares) / static_cast<float>(p.d) + p.eps);
  const auto* weights = reinterpret_cast<const FloatQuad*>(p.weight);
  GPU_UNROLL
  for (int i = 0; i < kNormQuads; ++i) {
    const int at = own + i * kThreads;
    if (at >= n_quads) continue;
    const FloatQuad q = quads[i];
    const FloatQuad w = weights == nullptr ? FloatQuad{1, 1, 1, 1} : weights[at];
    out[at] = {q.x * inverse * w.x, q.y * inverse * w.y, q.z * inverse * w.z, q.w * inverse * w.w};
  }
}

}  // namespace

// A warp for each row.
GPU_KERNEL(norm_short_rows, NormRowsParams, 256) {
  const int row = block_x() * (n_threads() / kWarp) + warp();
  if (row >= p.rows) return;
  normalize<kWarp>(p.norm, row, lane(), [](float x) { return warp_sum(x); });
}

// A block for each row.
GPU_KERNEL(norm_long_rows, NormRowsParams, 256) {
  GPU_SHARED float memory[32];
  normalize<kNormRowThreads>(p.norm, block_x(), thread(),
                             [&](float x) { return block_sum(x, memory); });
}

}  // namespace moeflux::gpu
GPU_CODE_END
