// Products of many rows in f32, with weights of any format and at any place: all of those that must
// be exact, and those of few columns.
#include "backends/cuda/kernels/product_parts.h"
#include "backends/cuda/kernels/weights.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// Blocks: columns, tiles of rows. A thread has 4 rows by 4 columns of a tile.
GPU_KERNEL(exact_product, ProductParams, 256) {
  constexpr int kDepth = 16, kStride = kExactRows + 4;
  alignas(16) GPU_SHARED float activations[kDepth * kStride];
  alignas(16) GPU_SHARED float weights[kDepth * kStride];
  const RowTile tile = row_tile(p, block_y(), kExactRows);
  if (tile.n_rows == 0) return;
  const int first_column = block_x() * kExactColumns;
  const bool is_gated = p.result.gate != Gate::None;

  // This thread brings four values of one row of either into shared memory, every time.
  const int own = thread() / 4, own_depth = thread() % 4 * 4;
  const float* x = nullptr;
  if (own < tile.n_rows) {
    const int row = tile.first + own;
    x = static_cast<const float*>(p.x) +
        (p.rows == nullptr ? row : p.rows[row] / p.divisor) * p.x_stride;
  }
  const int column = first_column + own;
  const int matrix = is_gated ? column % 2 : 0, weight_row = is_gated ? column / 2 : column;
  const DeviceWeight w = weight_of(p, matrix, tile.expert);
  const bool has_weight = column < p.result.n_columns;

  const int my_rows = thread() / 16 * 4, my_columns = thread() % 16 * 4;
  float sums[4][4] = {};
  for (int begin = 0; begin < w.cols; begin += kDepth) {
    sync();
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int c = begin + own_depth + i;
      const int at = (own_depth + i) * kStride + own;
      activations[at] = x != nullptr && c < w.cols ? x[c] : 0.0f;
      weights[at] = has_weight && c < w.cols ? weight_at(w, weight_row, c) : 0.0f;
    }
    sync();
    for (int d = 0; d < kDepth; ++d) {
      const FloatQuad a = *reinterpret_cast<const FloatQuad*>(activations + d * kStride + my_rows);
      const FloatQuad b = *reinterpret_cast<const FloatQuad*>(weights + d * kStride + my_columns);
      const float of_a[4] = {a.x, a.y, a.z, a.w}, of_b[4] = {b.x, b.y, b.z, b.w};
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        GPU_UNROLL
        for (int j = 0; j < 4; ++j) sums[i][j] += of_a[i] * of_b[j];
      }
    }
  }
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (my_rows + i >= tile.n_rows) continue;
    const int row = tile.first + my_rows + i;
    float* y =
        p.result.y + (p.result.rows == nullptr ? row : p.result.rows[row]) * p.result.y_stride;
    GPU_UNROLL
    for (int j = 0; j < 4; j += 2)
      store_result<true>(p.result, y, tile.expert, first_column + my_columns + j, sums[i][j],
                         sums[i][j + 1]);
  }
}

// Blocks: rows.
GPU_KERNEL(narrow_product, ProductParams, 256) {
  auto* weights = reinterpret_cast<float*>(dynamic_shared());
  const DeviceWeight& w = p.weights[0];
  const int n_columns = p.result.n_columns;
  for (int i = thread(); i < n_columns * w.cols; i += n_threads())
    weights[i] = weight_at(w, i / w.cols, i % w.cols);
  sync();
  for (int i = warp(); i < kNarrowRows; i += n_threads() / kWarp) {
    const int row = block_x() * kNarrowRows + i;
    if (row >= p.n) return;
    const float* x =
        static_cast<const float*>(p.x) + (p.rows == nullptr ? row : p.rows[row]) * p.x_stride;
    float* y =
        p.result.y + (p.result.rows == nullptr ? row : p.result.rows[row]) * p.result.y_stride;
    for (int column = 0; column < n_columns; ++column) {
      const float* own = weights + column * w.cols;
      constexpr int kAtOnce = 4;
      float sums[kAtOnce] = {};
      int c = lane();
      for (; c + (kAtOnce - 1) * kWarp < w.cols; c += kAtOnce * kWarp) {
        GPU_UNROLL
        for (int k = 0; k < kAtOnce; ++k) sums[k] += x[c + k * kWarp] * own[c + k * kWarp];
      }
      for (; c < w.cols; c += kWarp) sums[0] += x[c] * own[c];
      const float sum = warp_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
      if (lane() != 0) continue;
      y[column] = p.result.biases[0] == nullptr ? sum : sum + p.result.biases[0][column];
    }
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
