// One small matrix per head.
#include "backends/cuda/kernels/attention.h"
#include "backends/cuda/kernels/weights.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// Blocks: rows of a head's matrix, a warp for each; heads; kHeadInputs rows of x.
GPU_KERNEL(head_rows, HeadMatmulParams, kHeadThreads) {
  const int row = block_x() * (kHeadThreads / kWarp) + warp(), head = block_y();
  const int first = block_z() * kHeadInputs;
  const int n = p.n - first < kHeadInputs ? p.n - first : kHeadInputs;
  if (row >= p.rows) return;
  const float* x = p.x + first * p.x_stride + head * p.x_head;
  const int at = static_cast<int>(head * p.head_rows + p.row0) + row;
  float sums[kHeadInputs] = {};
  for (int c = lane(); c < p.weight.cols; c += kWarp) {
    const float weight = weight_at(p.weight, at, c);
    GPU_UNROLL
    for (int i = 0; i < kHeadInputs; ++i)
      if (i < n) sums[i] += weight * x[i * p.x_stride + c];
  }
  GPU_UNROLL
  for (int i = 0; i < kHeadInputs; ++i) {
    if (i >= n) break;
    const float sum = warp_sum(sums[i]);
    if (lane() == 0) p.y[(first + i) * p.y_stride + head * p.y_head + row] = sum;
  }
}

// Transposed. Blocks: 32 columns of a head's matrix, whose rows the warps share; heads; kHeadInputs
// rows of x.
GPU_KERNEL(head_columns, HeadMatmulParams, kHeadThreads) {
  constexpr int kWarps = kHeadThreads / kWarp;
  GPU_SHARED float parts[kWarps][kHeadInputs][kWarp];
  const int column = block_x() * kWarp + lane(), head = block_y();
  const int first = block_z() * kHeadInputs;
  const int n = p.n - first < kHeadInputs ? p.n - first : kHeadInputs;
  const float* x = p.x + first * p.x_stride + head * p.x_head;
  const int begin = static_cast<int>(head * p.head_rows + p.row0);
  float sums[kHeadInputs] = {};
  if (column < p.weight.cols) {
    for (int r = warp(); r < p.rows; r += kWarps) {
      const float weight = weight_at(p.weight, begin + r, column);
      GPU_UNROLL
      for (int i = 0; i < kHeadInputs; ++i)
        if (i < n) sums[i] += weight * x[i * p.x_stride + r];
    }
  }
  GPU_UNROLL
  for (int i = 0; i < kHeadInputs; ++i) parts[warp()][i][lane()] = sums[i];
  sync();
  if (warp() >= n || column >= p.weight.cols) return;
  float sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += parts[w][warp()][lane()];
  p.y[(first + warp()) * p.y_stride + head * p.y_head + column] = sum;
}

}  // namespace moeflux::gpu
GPU_CODE_END
