// One small matrix per head, for few rows of activations. Weights come eight at a time, columns
// next to each other: they share a scale in every usual format.
#include "backends/cuda/kernels/attention.h"
#include "backends/cuda/kernels/weights.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

constexpr int kWarps = kHeadThreads / kWarp;

template <Kind kKind, int kBits>
GPU_INLINE void load_eight(const DeviceWeight& w, int row, int column, float (&out)[8]) {
  std::uint32_t stored[kBits / 4], dwords[kBits] = {};
  load_dwords(w.data + row * w.row_bytes + std::int64_t{column} * kBits / 8, stored);
  GPU_UNROLL
  for (int i = 0; i < kBits / 4; ++i) dwords[i] = stored[i];
  const ScaleAndOffset s = scale_at(w, row, column);
  GPU_UNROLL
  for (int i = 0; i < 8; ++i) out[i] = s.scale * number_of<kKind, kBits>(dwords, i) + s.offset;
}

// Those at the end and behind are zero.
GPU_INLINE void eight_weights(const DeviceWeight& w, int row, int column, float (&out)[8]) {
  const bool has_scales = w.kind == Kind::Affine || w.kind == Kind::Fp8Block || w.kind == Kind::Fp4;
  const auto begin = reinterpret_cast<std::uintptr_t>(w.data) + row * w.row_bytes;
  if (begin % 4 == 0 && column + 8 <= w.cols && (!has_scales || w.group % 8 == 0)) {
    switch (w.kind) {
      case Kind::F32:
        return load_eight<Kind::F32, 32>(w, row, column, out);
      case Kind::F16:
        return load_eight<Kind::F16, 16>(w, row, column, out);
      case Kind::BF16:
        return load_eight<Kind::BF16, 16>(w, row, column, out);
      case Kind::Fp8Block:
        return load_eight<Kind::Fp8Block, 8>(w, row, column, out);
      case Kind::Fp4:
        return load_eight<Kind::Fp4, 4>(w, row, column, out);
      case Kind::Affine:
        if (w.bits == 8) return load_eight<Kind::Affine, 8>(w, row, column, out);
        if (w.bits == 4) return load_eight<Kind::Affine, 4>(w, row, column, out);
    }
  }
  GPU_UNROLL
  for (int i = 0; i < 8; ++i) out[i] = column + i < w.cols ? weight_at(w, row, column + i) : 0.0f;
}

}  // namespace

// Blocks: kHeadRows rows of a head's matrix, of which each warp takes some; heads; kHeadInputs rows
// of x.
GPU_KERNEL(head_rows, HeadMatmulParams, kHeadThreads) {
  const int head = block_y(), first = block_z() * kHeadInputs;
  const int n = p.n - first < kHeadInputs ? p.n - first : kHeadInputs;
  const int stride = (p.weight.cols + 7) / 8 * 8;
  auto* inputs = reinterpret_cast<float*>(dynamic_shared());
  const float* x = p.x + first * p.x_stride + head * p.x_head;
  GPU_UNROLL
  for (int i = 0; i < kHeadInputs; ++i) {
    for (int c = thread(); c < stride; c += kHeadThreads)
      inputs[i * stride + c] = i < n && c < p.weight.cols ? x[i * p.x_stride + c] : 0.0f;
  }
  sync();
  for (int k = warp(); k < kHeadRows; k += kWarps) {
    const int row = block_x() * kHeadRows + k;
    if (row >= p.rows) break;
    const int at = static_cast<int>(head * p.head_rows + p.row0) + row;
    float sums[kHeadInputs] = {};
    for (int c = lane() * 8; c < p.weight.cols; c += kWarp * 8) {
      float weights[8];
      eight_weights(p.weight, at, c, weights);
      GPU_UNROLL
      for (int i = 0; i < kHeadInputs; ++i) {
        const auto* quads = reinterpret_cast<const FloatQuad*>(inputs + i * stride + c);
        const FloatQuad a = quads[0], b = quads[1];
        sums[i] += weights[0] * a.x + weights[1] * a.y + weights[2] * a.z + weights[3] * a.w +
                   weights[4] * b.x + weights[5] * b.y + weights[6] * b.z + weights[7] * b.w;
      }
    }
    GPU_UNROLL
    for (int i = 0; i < kHeadInputs; ++i) {
      const float sum = warp_sum(sums[i]);
      if (i < n && lane() == 0) p.y[(first + i) * p.y_stride + head * p.y_head + row] = sum;
    }
  }
}

// Transposed. Blocks: kHeadColumns columns of a head's matrix, whose rows the warps share; heads;
// kHeadInputs rows of x.
GPU_KERNEL(head_columns, HeadMatmulParams, kHeadThreads) {
  static_assert(kHeadColumns == kWarp * 8 && kHeadThreads == kHeadColumns);
  const int head = block_y(), first = block_z() * kHeadInputs;
  const int column = block_x() * kHeadColumns + lane() * 8;
  const int n = p.n - first < kHeadInputs ? p.n - first : kHeadInputs;
  const float* x = p.x + first * p.x_stride + head * p.x_head;
  const int begin = static_cast<int>(head * p.head_rows + p.row0);
  float sums[kHeadInputs][8] = {};
  if (column < p.weight.cols) {
    for (int r = warp(); r < p.rows; r += kWarps) {
      float weights[8];
      eight_weights(p.weight, begin + r, column, weights);
      GPU_UNROLL
      for (int i = 0; i < kHeadInputs; ++i) {
        const float input = i < n ? x[i * p.x_stride + r] : 0.0f;
        GPU_UNROLL
        for (int c = 0; c < 8; ++c) sums[i][c] += weights[c] * input;
      }
    }
  }
  auto* parts = reinterpret_cast<float*>(dynamic_shared());  // [warp][input][column]
  GPU_UNROLL
  for (int i = 0; i < kHeadInputs; ++i) {
    GPU_UNROLL
    for (int c = 0; c < 8; ++c)
      parts[(warp() * kHeadInputs + i) * kHeadColumns + lane() * 8 + c] = sums[i][c];
  }
  sync();
  const int own = block_x() * kHeadColumns + thread();
  if (own >= p.weight.cols) return;
  for (int i = 0; i < n; ++i) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += parts[(w * kHeadInputs + i) * kHeadColumns + thread()];
    p.y[(first + i) * p.y_stride + head * p.y_head + own] = sum;
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
